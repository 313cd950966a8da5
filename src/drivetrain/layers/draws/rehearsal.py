"""Runs a copy of a model on two batches, to find out where it draws random numbers and for which samples."""

import random
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from drivetrain.core.factories import describe_failure
from drivetrain.layers.context import NO_SAMPLES, ROWS_APART, UpdateContext, Use
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
_MORE_PASSES = 6


def find_draws(recipe: Recipe, model: nn.Module, *, image_shape: tuple[int, int, int]) -> DrawFacts:
    """Where the model of a recipe draws; the models of this project do so in known layers only."""
    kinds = {type(module).__module__ for module in model.modules()}
    if is_own_model(recipe) and all(kind.startswith(("torch.nn.", "drivetrain.")) for kind in kinds):
        return DrawFacts()
    return rehearse_draws(model, image_shape=image_shape, seed=recipe.seed)


def rehearse_draws(model: nn.Module, *, image_shape: tuple[int, int, int], seed: int) -> DrawFacts:
    """Where a model draws in training; nothing is known of a model that does not run."""
    failure = ""
    for device in devices_to_try(model, (_BATCHES[-1], *image_shape)):
        try:
            return _rehearsed(_Rehearsal(model, device, image_shape, seed))
        except Exception as error:
            failure = describe_failure(error)
    return DrawFacts(failure=failure)


def _rehearsed(rehearsal: "_Rehearsal") -> DrawFacts:
    first, second = (rehearsal.run(batch, number=number) for number, batch in enumerate(_BATCHES))
    others = []
    if first.by_micro_batch or second.by_micro_batch:
        # What is drawn may decide which code runs, and so what else is drawn.
        others = [rehearsal.run(_BATCHES[0], number=number) for number in range(2, 2 + _MORE_PASSES)]
    return _facts(first, second, others=others, minor=rehearsal.rows_by_sample(first))


@dataclass(slots=True)
class _Found:
    shapes: dict[Use, torch.Size] = field(default_factory=dict)
    inputs: dict[Use, Tensor] = field(default_factory=dict)
    places: dict[str, bool] = field(default_factory=dict)
    by_micro_batch: dict[str, None] = field(default_factory=dict)
    uses_checkpoint: bool = False

    def note_checkpoint(self) -> None:
        self.uses_checkpoint = True

    def note_generator(self, name: str, what: str) -> None:
        self.by_micro_batch[f"{what} in {f'module {name}' if name else 'the model'}"] = None


@dataclass(frozen=True, slots=True)
class _Rehearsal:
    """Passes of copies of a model, each from a seed of its own, so that every process finds the same."""

    model: nn.Module
    device: torch.device
    image_shape: tuple[int, int, int]
    seed: int

    def run(self, batch: int, *, number: int, changed: int | None = None, is_calm: bool = False) -> _Found:
        """One pass in training mode.

        `changed` is a sample that is replaced; a `calm` pass has norms in eval mode, which mix no samples.
        """
        copy = copy_to(self.device, self.model).train()
        if is_calm:
            for norm in (module for module in copy.modules() if isinstance(module, _NormBase)):
                norm.eval()
        context, found = UpdateContext(self.device), _Found()
        context.shapes, context.inputs = found.shapes, found.inputs
        install_counter_dropout(copy, seed=self.seed, context=context)
        scopes = _Scopes(copy, found, context)
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            stack.enter_context(kept_host_generators())
            images = self._images(batch, number=number, changed=changed)
            stack.enter_context(rewound_checkpoints(_nothing_again, seen=found.note_checkpoint))
            stack.enter_context(_Functions(scopes, seed=self.seed))
            stack.enter_context(_Operations(scopes))
            scopes.begin()
            copy(images)
            scopes.end()
        return found

    def _images(self, batch: int, *, number: int, changed: int | None) -> Tensor:
        torch.default_generator.manual_seed(number)
        random.seed(number)
        np.random.seed(number)
        shape, kind = (batch, *self.image_shape), float_dtype_of(self.model)
        images = torch.randn(shape, dtype=kind, device=self.device)
        if changed is not None:
            images[changed] = torch.randn(self.image_shape, dtype=kind, device=self.device)
        torch.default_generator.manual_seed(number)
        return images

    def rows_by_sample(self, found: _Found) -> dict[Use, bool]:
        """For draws with several rows per sample: whether the rows of a sample lie together.

        A draw is missing where rows cannot be told apart; without values that is everywhere.
        """
        batch = _BATCHES[0]
        several = {use: shape for use, shape in found.shapes.items() if shape and shape[0] > batch}
        if not several or self.device.type == "meta":
            return dict.fromkeys(several, True)
        plain = self.run(batch, number=0, is_calm=True).inputs
        other = self.run(batch, number=0, changed=0, is_calm=True).inputs
        order: dict[Use, bool] = {}
        for use, shape in several.items():
            if use not in plain or use not in other or plain[use].shape != other[use].shape:
                continue
            # Some rows of the changed sample may stay the same, such as the zeros behind a ReLU.
            changed = (plain[use] != other[use]).flatten(1).any(1).nonzero().flatten().tolist()
            lie_together = all(row < shape[0] // batch for row in changed)
            lie_apart = all(row % batch == 0 for row in changed)
            if lie_together != lie_apart:
                order[use] = lie_together
        return order


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


def _facts(first: _Found, second: _Found, *, others: list[_Found], minor: dict[Use, bool]) -> DrawFacts:
    everyone = [first, second, *others]
    places: dict[str, bool] = {}
    for found in everyone:
        for name, is_seeded in found.places.items():
            places[name] = places.get(name, False) or is_seeded
    several = {use for use, shape in first.shapes.items() if shape and shape[0] > _BATCHES[0]}
    dims: dict[Use, int | None] = {}
    for use, shape in second.shapes.items():
        dim = _sample_dim(first.shapes.get(use), shape)
        if dim == 0 and use in several:
            dim = NO_SAMPLES if use not in minor else 0 if minor[use] else ROWS_APART
        dims[use] = dim
    return DrawFacts(
        places=places,
        by_micro_batch=tuple(dict.fromkeys(what for found in everyone for what in found.by_micro_batch)),
        # Samples first is what the context assumes.
        sample_dims={use: dim for use, dim in dims.items() if dim != 0},
        uses_checkpoint=any(found.uses_checkpoint for found in everyone),
    )


def _sample_dim(first: torch.Size | None, second: torch.Size) -> int | None:
    """The dimension that grows with the batch; None if none does."""
    if first is None or len(first) != len(second):
        return 0
    grown = [dim for dim, (one, other) in enumerate(zip(first, second, strict=True)) if one != other]
    if not grown:
        return None
    return grown[0] if len(grown) == 1 else NO_SAMPLES
