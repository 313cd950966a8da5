"""torch.utils.checkpoint inside a model: what it runs again in the backward pass draws the same numbers.

checkpoint itself restores torch's generators, but not the place of a draw in the forward pass.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch.utils.checkpoint

__all__ = ["rewound_checkpoints"]

_Again = Callable[[], AbstractContextManager[object]]


@contextmanager
def rewound_checkpoints(
    begin: Callable[[], _Again], *, seen: Callable[[], None] | None = None
) -> Iterator[None]:
    """Inside the block, the second run of a checkpointed function goes back to where the first began.

    `begin` is called at the first run; what it returns surrounds each further run. `seen` is called for every
    use of checkpoint. The two names are looked up by `checkpoint` in torch 2.11 to 2.13 at every call, so
    that code which imported `checkpoint` itself is reached too.
    """
    module = torch.utils.checkpoint
    function, generator = module.CheckpointFunction, module._checkpoint_without_reentrant_generator

    class Reentrant:
        @staticmethod
        def apply(run: Callable[..., Any], *args: Any) -> Any:
            _tell(seen)
            return function.apply(_Rerun(run, begin(), first_is_plain=True), *args)  # type: ignore[no-untyped-call]

    def without_reentrant(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        _tell(seen)
        return generator(_Rerun(run, begin(), first_is_plain=False), *args, **kwargs)

    module.CheckpointFunction = Reentrant  # type: ignore[assignment, misc]
    module._checkpoint_without_reentrant_generator = without_reentrant  # type: ignore[assignment]
    try:
        yield
    finally:
        module.CheckpointFunction = function  # type: ignore[misc]
        module._checkpoint_without_reentrant_generator = generator


def _tell(seen: Callable[[], None] | None) -> None:
    if seen is not None:
        seen()


class _Rerun:
    """A checkpointed function; the reentrant form calls it for the first run too."""

    def __init__(self, run: Callable[..., Any], again: _Again, *, first_is_plain: bool) -> None:
        self._run, self._again, self._is_first = run, again, first_is_plain

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_first:
            self._is_first = False
            return self._run(*args, **kwargs)
        with self._again():
            return self._run(*args, **kwargs)
