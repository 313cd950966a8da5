"""Runs a copy of a model on two batches, to find out where it draws random numbers and for which samples."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from drivetrain.layers.context import UpdateContext, Use
from drivetrain.layers.draws.checkpoints import rewound_checkpoints
from drivetrain.layers.draws.facts import DrawFacts
from drivetrain.layers.draws.functions import is_drawing_function, per_sample
from drivetrain.layers.draws.generators import (
    has_own_generators,
    host_states,
    kept_host_generators,
)
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.layers.draws.places import call_key
from drivetrain.layers.draws.site import Site
from drivetrain.models.from_recipe import is_own_model
from drivetrain.models.summary import copy_to, devices_to_try, float_dtype_of
from drivetrain.recipe.schema import Recipe

__all__ = ["find_draws", "rehearse_draws"]

# Two sizes, to tell the dimension of the samples from others; batch norm refuses a single value per channel.
_BATCHES = (2, 3)


def find_draws(recipe: Recipe, model: nn.Module, *, image_shape: tuple[int, int, int]) -> DrawFacts:
    """Where the model of a recipe draws; the models of this project do so in known layers only."""
    kinds = {type(module).__module__ for module in model.modules()}
    if is_own_model(recipe) and all(kind.startswith(("torch.nn.", "drivetrain.")) for kind in kinds):
        return DrawFacts()
    return rehearse_draws(model, image_shape=image_shape, seed=recipe.seed)


def rehearse_draws(model: nn.Module, *, image_shape: tuple[int, int, int], seed: int) -> DrawFacts:
    """Where a model draws in training; nothing is known of a model that does not run."""
    for device in devices_to_try(model, (_BATCHES[-1], *image_shape)):
        try:
            found = [_run(model, device, (batch, *image_shape), seed=seed) for batch in _BATCHES]
        except Exception:
            continue
        return _facts(*found)
    return DrawFacts()


@dataclass(slots=True)
class _Found:
    shapes: dict[Use, torch.Size] = field(default_factory=dict)
    places: dict[str, bool] = field(default_factory=dict)
    by_micro_batch: dict[str, None] = field(default_factory=dict)
    uses_checkpoint: bool = False

    def note_checkpoint(self) -> None:
        self.uses_checkpoint = True

    def note_generator(self, name: str, what: str) -> None:
        self.by_micro_batch[f"{what} in {f'module {name}' if name else 'the model'}"] = None


def _run(model: nn.Module, device: torch.device, shape: tuple[int, ...], *, seed: int) -> _Found:
    copy = copy_to(device, model).train()
    context = UpdateContext(device)
    found = _Found()
    context.shapes = found.shapes
    install_counter_dropout(copy, seed=seed, context=context)
    scopes = _Scopes(copy, found, context)
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(kept_host_generators())
        stack.enter_context(rewound_checkpoints(_nothing_again, seen=found.note_checkpoint))
        stack.enter_context(_Functions(scopes, seed=seed))
        stack.enter_context(_Operations(scopes))
        scopes.begin()
        copy(torch.zeros(shape, device=device, dtype=float_dtype_of(model)))
        scopes.end()
    return found


def _nothing_again() -> Any:
    return ExitStack


class _Scopes:
    """The modules whose code is running, innermost last, and what they draw."""

    def __init__(self, model: nn.Module, found: _Found, context: UpdateContext) -> None:
        self.found, self.context = found, context
        self.is_intercepted = False
        self._stack: list[list[Any]] = []
        self._uses: dict[str, int] = {}
        for name, module in model.named_modules():
            if name:
                self._watch(name, module)
            if has_own_generators(module):
                found.places[name] = True
                found.note_generator(name, "a generator of its own")

    def _watch(self, name: str, module: nn.Module) -> None:
        def enter(_module: nn.Module, _inputs: object) -> None:
            self._check_host()
            use = self._uses.get(name, 0)
            self._uses[name] = use + 1
            self._stack.append([name, use, 0])

        def leave(_module: nn.Module, _inputs: object, _output: object) -> None:
            self._check_host()
            self._stack.pop()

        module.register_forward_pre_hook(enter, prepend=True)
        module.register_forward_hook(leave)

    def begin(self) -> None:
        self._stack = [["", 0, 0]]
        self._host = host_states()

    def end(self) -> None:
        self._check_host()

    @property
    def name(self) -> str:
        return str(self._stack[-1][0])

    def next_call(self) -> tuple[str, int, int]:
        """The place of the next call that draws."""
        frame = self._stack[-1]
        frame[2] += 1
        return frame[0], frame[1], frame[2] - 1

    def note_hidden(self, what: str) -> None:
        """A draw that no function shows: its module must run on seeded generators."""
        self.found.places[self.name] = True
        self.found.note_generator(self.name, what)

    def _check_host(self) -> None:
        now = host_states()
        if now != self._host:
            self.note_hidden("Python's or numpy's generator")
            self._host = now


class _Functions(TorchFunctionMode):
    """Notes functions that draw; those that can draw per sample only note their shapes."""

    def __init__(self, scopes: _Scopes, *, seed: int) -> None:
        super().__init__()
        self._scopes, self._seed = scopes, seed

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not is_drawing_function(func):
            return func(*args, **(kwargs or {}))
        scope, use, index = self._scopes.next_call()
        scopes = self._scopes
        scopes.is_intercepted = True
        try:
            drawn_per_sample = per_sample(func)
            if drawn_per_sample is not None:
                key = call_key(self._seed, scope=scope, use=use, index=index)
                outputs = drawn_per_sample(Site(key, scopes.context), *args, **(kwargs or {}))
                # Attention without dropout draws nothing.
                if (key, 0) in scopes.found.shapes:
                    scopes.found.places.setdefault(scope, False)
                return outputs
            scopes.found.places.setdefault(scope, False)
            scopes.found.note_generator(scope, func.__name__)
            return func(*args, **(kwargs or {}))
        finally:
            scopes.is_intercepted = False


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes draws below the functions, such as the dropout between the layers of an LSTM."""

    def __init__(self, scopes: _Scopes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._scopes = scopes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags and not self._scopes.is_intercepted:
            self._scopes.note_hidden(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def _facts(first: _Found, second: _Found) -> DrawFacts:
    names = dict.fromkeys([*first.places, *second.places])
    dims = {use: _sample_dim(first.shapes.get(use), shape) for use, shape in second.shapes.items()}
    return DrawFacts(
        places={name: first.places.get(name, False) or second.places.get(name, False) for name in names},
        by_micro_batch=tuple(dict.fromkeys([*first.by_micro_batch, *second.by_micro_batch])),
        # Samples first is what the context assumes.
        sample_dims={use: dim for use, dim in dims.items() if dim != 0},
        uses_checkpoint=first.uses_checkpoint or second.uses_checkpoint,
    )


def _sample_dim(first: torch.Size | None, second: torch.Size) -> int | None:
    """The dimension that grows with the batch; None if none does, or several do."""
    if first is None or len(first) != len(second):
        return 0
    grown = [dim for dim, (one, other) in enumerate(zip(first, second, strict=True)) if one != other]
    return grown[0] if len(grown) == 1 else (None if not grown else 0)
