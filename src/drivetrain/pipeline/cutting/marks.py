"""Marks that assign modules to pipeline stages, set while the model is built or afterwards."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean

__all__ = ["assign_stages", "has_marks", "mark_of", "marked_stages", "stage"]

_ATTRIBUTE = "_drivetrain_stage"

# Several threads may build models at once: the patch of nn.Module.__init__ is shared and counted under a
# lock, and the current stage is kept per thread.
_former_init: Callable[..., None] = nn.Module.__init__
_lock = threading.Lock()
_num_open = 0
_of_thread = threading.local()


def _marking_init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
    _former_init(self, *args, **kwargs)
    stages: list[int] = getattr(_of_thread, "stages", [])
    if stages:
        _set_mark(self, stages[-1])


@contextmanager
def stage(index: int) -> Iterator[None]:
    """Modules built inside, by this thread, belong to pipeline stage `index`; the innermost `with` counts."""
    _check_index(index)
    _count_open(1)
    _of_thread.stages = [*getattr(_of_thread, "stages", []), index]
    try:
        yield
    finally:
        _of_thread.stages = _of_thread.stages[:-1]
        _count_open(-1)


def _count_open(change: int) -> None:
    """Patches nn.Module.__init__ while a `stage` block is open; other libraries may have patched it too."""
    global _num_open, _former_init
    with _lock:
        if _num_open == 0:
            _former_init = nn.Module.__init__
            nn.Module.__init__ = _marking_init  # type: ignore[method-assign]
        _num_open += change
        if _num_open == 0:
            nn.Module.__init__ = _former_init  # type: ignore[method-assign]


def assign_stages(stages: Mapping[Any, int], model: nn.Module) -> None:
    """Assigns modules of a built model, with everything inside them, to stages; keys are paths or modules."""
    paths = {module: path for path, module in model.named_modules()}
    chosen = {_find(key, paths): index for key, index in stages.items()}
    for index in chosen.values():
        _check_index(index)
    # Outer modules first: each one clears the marks inside it, and inner modules are then marked again.
    for module in sorted(chosen, key=lambda module: _depth(paths[module])):
        for inner in module.modules():
            vars(inner).pop(_ATTRIBUTE, None)
        _set_mark(module, chosen[module])


def _find(key: str | nn.Module, paths: Mapping[nn.Module, str]) -> nn.Module:
    known = {path: module for module, path in paths.items()}
    module = known.get(key) if isinstance(key, str) else key
    if module is None:
        hint = did_you_mean(str(key), known)
        raise BadInputError(f"assign_stages: the model has no module {key}.{hint}")
    if module not in paths:
        raise BadInputError(
            f"assign_stages: the {type(module).__name__} given is not a module of the model; use one of "
            "model.modules()."
        )
    return module


def _depth(path: str) -> int:
    return len(path.split(".")) if path else 0


def _check_index(index: int) -> None:
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise BadInputError(f"A stage must be a whole number from 0 on, not {index!r}; stage(0) works.")


def mark_of(module: nn.Module) -> int | None:
    """The stage in the module's own mark, or None; modules around it are not considered."""
    mark: int | None = vars(module).get(_ATTRIBUTE)
    return mark


def has_marks(model: nn.Module) -> bool:
    """Whether any module of a model is marked."""
    return marked_stages(model) > 0


def marked_stages(model: nn.Module) -> int:
    """The number of stages that the marks of a model define; 0 if there are no marks."""
    # The layers of a Keras model are modules, but not always submodules of it.
    modules: Iterable[nn.Module] = getattr(model, "_flatten_layers", model.modules)()
    marks = [mark for module in modules if (mark := mark_of(module)) is not None]
    return max(marks, default=-1) + 1


def _set_mark(module: nn.Module, index: int) -> None:
    vars(module)[_ATTRIBUTE] = index
