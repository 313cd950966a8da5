"""Gives every draw of a model the numbers of its place: (seed, update, sample or micro-batch, module, call).

Known layers (`known_layers.py`) need nothing of this. For other models a mode intercepts the functions of
torch that draw, and hooks tell it in which module's code they are called. A module that draws in another way
runs on generators that are seeded for it and put back afterwards.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode

from drivetrain.core.element_hash import signed
from drivetrain.core.randomness import stream_key
from drivetrain.devices.device import Device
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.checkpoints import rewound_checkpoints
from drivetrain.layers.draws.facts import DrawFacts
from drivetrain.layers.draws.functions import is_drawing_function, per_sample
from drivetrain.layers.draws.generators import seeded, seeded_own, seeded_torch
from drivetrain.layers.draws.site import Site

__all__ = ["DrawPlaces", "PlacedFunction", "call_key", "install_places", "use_keys"]

_WORD = "draw"
_running = threading.local()


@dataclass(slots=True)
class _Frame:
    """A module whose code is running: its name, which of its uses this is, and its draws so far."""

    name: str
    use: int
    draws: int = 0


def call_key(seed: int, *, scope: str, use: int, index: int) -> int:
    """The key of a call that draws: the `index`-th in the code of module `scope`, in its `use`-th run."""
    return signed(stream_key(seed, _WORD, scope, use, index))


def place_key(seed: int, name: str) -> int:
    """The key by which the uses of a module are counted."""
    return signed(stream_key(seed, _WORD, name))


@dataclass(slots=True, kw_only=True)
class DrawPlaces:
    """The draws of a model outside its known layers; `facts` say which there are.

    `recomputing` surrounds what torch.utils.checkpoint runs again during a backward pass.
    """

    model: nn.Module
    seed: int
    context: UpdateContext
    device: Device
    facts: DrawFacts
    _frames: list[_Frame] = field(default_factory=list)
    _is_placed: bool = False

    @contextmanager
    def running(self, recomputing: Callable[[], Any] | None = None) -> Iterator[None]:
        """A forward pass in training."""
        if not self.facts.needs_places:
            yield
            return
        with ExitStack() as stack:
            if self.facts.uses_checkpoint:
                stack.enter_context(rewound_checkpoints(lambda: self._rerun(recomputing)))
            stack.enter_context(self._intercepting([_Frame("", 0)]))
            if self.facts.places.get(""):
                key = self._generator_key(stream_key(self.seed, _WORD, ""), what="the model")
                stack.enter_context(seeded(key, device=self.device, owner=self.model))
            yield

    @contextmanager
    def _intercepting(self, frames: list[_Frame]) -> Iterator[None]:
        before, self._frames = self._frames, frames
        outer = getattr(_running, "places", None)
        _running.places = self
        try:
            with _Intercept(self):
                yield
        finally:
            self._frames = before
            _running.places = outer

    def _rerun(self, recomputing: Callable[[], Any] | None) -> Callable[[], Any]:
        """A function that enters this point of the forward pass again."""
        moment = self.context.now()
        frames = [(frame.name, frame.use, frame.draws) for frame in self._frames]

        @contextmanager
        def again() -> Iterator[None]:
            with ExitStack() as stack:
                stack.enter_context(self.context.back_at(moment))
                if recomputing is not None:
                    stack.enter_context(recomputing())
                stack.enter_context(self._intercepting([_Frame(*values) for values in frames]))
                yield

        return again

    @contextmanager
    def inside(self, name: str, module: nn.Module, *, is_seeded: bool) -> Iterator[None]:
        """The code of a module that draws."""
        use = self.context.count_use(place_key(self.seed, name))
        self._frames.append(_Frame(name, use))
        try:
            if is_seeded:
                key = self._generator_key(stream_key(self.seed, _WORD, name, use), what=f"module {name}")
                with seeded(key, device=self.device, owner=module):
                    yield
            else:
                yield
        finally:
            self._frames.pop()

    @property
    def is_running(self) -> bool:
        return bool(self._frames)

    @property
    def is_placed(self) -> bool:
        """Whether a call with a place is running."""
        return self._is_placed

    def call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls a function that draws, at the next place in the code that is running."""
        frame = self._frames[-1]
        frame.draws += 1
        key = call_key(self.seed, scope=frame.name, use=frame.use, index=frame.draws - 1)
        return self.call_at(key, function, args, kwargs)

    def call_at(self, key: int, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls a function that draws, with the numbers of the place `key`; calls inside it have no place."""
        before, self._is_placed = self._is_placed, True
        try:
            return self._call_at(key, function, args, kwargs)
        finally:
            self._is_placed = before

    def _call_at(self, key: int, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        drawn_per_sample = per_sample(function)
        if drawn_per_sample is not None:
            return drawn_per_sample(Site(key, self.context), *args, **kwargs)
        seed = self._generator_key(key, what=function.__name__)
        with seeded_torch(seed, device=self.device), seeded_own(kwargs.get("generator"), seed):
            return function(*args, **kwargs)

    def _generator_key(self, place: int, *, what: str) -> int:
        if self.context.generator_key is None:
            # A captured update runs no Python when it is replayed.
            raise RuntimeError(f"{what} draws from a generator")
        return (self.context.generator_key + place) % (1 << 64)


class _Intercept(TorchFunctionMode):
    def __init__(self, places: DrawPlaces) -> None:
        super().__init__()
        self._places = places

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if is_drawing_function(func) and not self._places.is_placed:
            return self._places.call(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


class PlacedFunction:
    """A function that draws, cut out of a model's code, with the place that it has there.

    Outside a training pass it is the function itself.
    """

    def __init__(self, function: Any, scope: str, use: int, index: int) -> None:
        self._function, self._place = function, (scope, use, index)
        # torch.fx writes the code of a graph with these names.
        self.__name__ = self.__qualname__ = f"placed_{function.__name__}"
        self.__module__ = __name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        places: DrawPlaces | None = getattr(_running, "places", None)
        if places is None:
            return self._function(*args, **kwargs)
        scope, use, index = self._place
        return places.call_at(
            call_key(places.seed, scope=scope, use=use, index=index), self._function, args, kwargs
        )


def install_places(model: nn.Module, places: DrawPlaces) -> None:
    """Makes the modules of a model that draw tell where they are; the root needs no hook."""
    for name, module in model.named_modules():
        if name in places.facts.places and name:
            _watch(module, _Visits(places, name, is_seeded=places.facts.places[name]))


def use_keys(module: nn.Module, *, name: str, seed: int) -> tuple[int, ...]:
    """The keys by which the uses of a module are counted: as a known layer, and as a place."""
    site = getattr(module, "site", None)
    return (*([site.key] if isinstance(site, Site) else []), place_key(seed, name))


class _Visits:
    """Hooks around the calls of one module."""

    def __init__(self, places: DrawPlaces, name: str, *, is_seeded: bool) -> None:
        self._places, self._name, self._is_seeded = places, name, is_seeded
        self._open: list[ExitStack | None] = []

    def enter(self, module: nn.Module, _inputs: object) -> None:
        if not self._places.is_running:
            self._open.append(None)
            return
        stack = ExitStack()
        stack.enter_context(self._places.inside(self._name, module, is_seeded=self._is_seeded))
        self._open.append(stack)

    def leave(self, _module: nn.Module, _inputs: object, _output: object) -> None:
        if self._open:
            stack = self._open.pop()
            if stack is not None:
                stack.close()


def _watch(module: nn.Module, visits: _Visits) -> None:
    module.register_forward_pre_hook(visits.enter, prepend=True)
    # Also after an error, so that generators are put back.
    module.register_forward_hook(visits.leave, always_call=True)
