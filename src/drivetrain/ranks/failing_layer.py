"""Which layer of a model an error came from, read off the error itself: training does nothing for it."""

import sys
from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

__all__ = ["failing_layer"]

# What torch.compile puts around a model.
_WRAPPER = "_orig_mod"


def failing_layer(error: BaseException) -> str | None:
    """The innermost layer at work, by its name in the outermost model, as in "stem.conv (Conv2d)"."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for link in _causes(error):
        layers = [owner for owner in _owners(link) if isinstance(owner, torch.nn.Module)]
        if layers:
            return _innermost_named(layers)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        yield link
        seen.append(link)
        link = link.__cause__


def _owners(error: BaseException) -> list[Any]:
    """The objects whose methods an error went through, from the outside in.

    Only of these are the locals looked at: Python keeps what it shows of them for as long as the frame lives,
    and that of whoever handles the error holds the error itself.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return [frame.f_locals.get("self") for frame in frames if frame.f_code.co_varnames[:1] == ("self",)]


def _innermost_named(layers: list[Any]) -> str | None:
    names = {id(layer): _plain(name) for name, layer in layers[0].named_modules()}
    for layer in reversed(layers):
        if names.get(id(layer)):
            return f"{names[id(layer)]} ({type(layer).__name__})"
    return None


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != _WRAPPER)
