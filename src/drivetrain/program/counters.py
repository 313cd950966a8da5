"""Plain numbers and words that the modules of a model keep: what a replayed update would not change."""

from torch import nn

__all__ = ["changed", "counters_of"]

_Plain = int | float | str
_Counters = dict[str, _Plain]


def counters_of(model: nn.Module) -> _Counters:
    """Every plain attribute of every module, by its full name."""
    return {
        f"{name}.{key}" if name else key: value
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, _Plain)
    }


def changed(before: _Counters, after: _Counters) -> str:
    """The first attribute that differs; empty where all are as they were."""
    return next((name for name, value in after.items() if before.get(name) != value), "")
