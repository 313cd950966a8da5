"""How long tests wait for processes, files and each other: only what hangs takes so long.

A busy machine takes many times as long as an idle one for the same work. pytest's own timeout
(pyproject.toml) is longer still, so that a test can say what it waited for.
"""

import time
from collections.abc import Callable

__all__ = ["HANG_S", "wait_until"]

HANG_S = 600.0


def wait_until(condition: Callable[[], bool], *, what: str = "what a test waits for") -> None:
    """Returns once a condition holds."""
    deadline_s = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} did not come"
        time.sleep(0.02)
