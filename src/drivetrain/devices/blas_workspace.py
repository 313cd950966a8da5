"""The workspace of cuBLAS with which its products have the same bits in every process.

Without a workspace of fixed size, cuBLAS may divide the sums of a product differently each time. It reads the
variable when its first product is computed, so the variable is set before any device is chosen.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from drivetrain.core.errors import BadInputError

__all__ = ["check_workspace", "fixed_workspace"]

_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
# The two values that NVIDIA documents as deterministic; eight buffers of 4 MiB are the faster one.
_USUAL = ":4096:8"
_DETERMINISTIC = (_USUAL, ":16:8")


def check_workspace() -> None:
    """Refuses an environment in which products cannot be deterministic."""
    given = os.environ.get(_VARIABLE)
    if given is not None and given not in _DETERMINISTIC:
        raise BadInputError(
            f"--deterministic needs {_VARIABLE}={_USUAL}, but the environment sets it to {given!r}; unset it "
            "or set it to that value."
        )


@contextmanager
def fixed_workspace(*, is_on: bool) -> Iterator[None]:
    """Fixes the workspace inside the block, and for processes started there; a given value stays."""
    if not is_on or _VARIABLE in os.environ:
        yield
        return
    os.environ[_VARIABLE] = _USUAL
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
