"""Trains a module of the corpus for a few updates in a layout, and compares two such trainings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.assembly.training_parts import Assembly, assemble
from drivetrain.core.randomness import stream_key
from drivetrain.data.source import ArraySource, DataSpec, DataSplits
from drivetrain.devices.device import choose_device
from drivetrain.models.from_recipe import rebuild_model
from drivetrain.models.lazy_layers import complete_lazy_layers
from drivetrain.models.memory_format import memory_format_of
from drivetrain.models.own_model import OwnModel
from drivetrain.plan.training_plan import plan_training
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from drivetrain.state.program_state import ProgramState, collect_state, load_state
from drivetrain.verify.compare import worst_tensor
from drivetrain.verify.cuts import Layout
from tests.corpus.layouts import REFERENCE
from tests.corpus.modules import CASES
from tests.corpus.registry import Case

__all__ = [
    "Trained",
    "different",
    "differing_arrays",
    "differing_bits",
    "gradients_of_torch",
    "train_case",
    "train_on_rank",
    "warnings_of",
]

UPDATES = 2
_SAMPLES = 36
# As `verify` has them: rounding of a layout in float64 is five digits below.
_TOLERANCES = {"float64": 1e-10, "float32": 1e-5}
Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The gradients and the whole state after each update, the losses, and whether updates were captured."""

    gradients: tuple[Arrays, ...]
    states: tuple[ProgramState, ...]
    losses: np.ndarray[Any, Any]
    capture: str = ""


def train_case(
    case: Case,
    layout: Layout = REFERENCE,
    *,
    group: ReplicaGroup = ALONE,
    updates: int = UPDATES,
    starts: Sequence[ProgramState] = (),
    first: int = 0,
    make: Callable[[], nn.Module] | None = None,
    given: bool = False,
    spoil: str | None = None,
    **options: Any,
) -> Trained:
    """Trains a module; every update but update 0 begins from `starts[update - 1]`, where there is one.

    `first`: the first update to run. `make` replaces the module, `given` hands it over in Python, and
    `spoil` names a weight whose gradient is multiplied by 1.001.
    """
    program = _assembled(case, layout, group=group, make=make, given=given, **options).program
    if spoil is not None:
        program.model.get_parameter(spoil).register_hook(lambda gradient: gradient * 1.001)  # type: ignore[no-untyped-call]
    gradients, states = [], []
    program.model.train()
    try:
        for update in range(first, updates):
            if 0 < update <= len(starts):
                load_state(program, starts[update - 1])
            program.run_update(update)
            gradients.append(_all_gradients(program))
            states.append(_copied(collect_state(program)))
    finally:
        program.feed.close()
    return Trained(
        gradients=tuple(gradients),
        states=tuple(states),
        losses=program.records.read("loss", first, updates),
        capture=program.capture_status,
    )


def train_on_rank(
    group: ReplicaGroup, name: str, layout: Layout, starts: Sequence[ProgramState], spoil: str | None = None
) -> Trained:
    """`train_case` as one rank of a layout."""
    return train_case(CASES[name], layout, group=group, starts=starts, spoil=spoil)


def warnings_of(case: Case, layout: Layout) -> list[str]:
    """What a training in a layout says about the module, without ranks."""
    assembly = _assembled(case, layout)
    assembly.program.feed.close()
    return assembly.warnings


def gradients_of_torch(case: Case) -> tuple[Arrays, float]:
    """The gradient of the first update and its loss, by torch alone, from the samples that a program took."""
    program = _assembled(case, REFERENCE).program
    try:
        batches = [numbered.batch for numbered in program.batches.of(0)]
    finally:
        program.feed.close()
    model = _made_by_torch(case).train()
    total, samples = 0.0, sum(len(batch.labels) for batch in batches)
    for batch in batches:
        # In the layout that the program chose: in 16 bits another one rounds otherwise.
        logits = model(batch.images.contiguous(memory_format=memory_format_of(program.model)))
        loss = functional.cross_entropy(logits, batch.labels, reduction="sum") / samples
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return {
        name: np.zeros(parameter.shape) if parameter.grad is None else _array(parameter.grad)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }, total


def _made_by_torch(case: Case) -> nn.Module:
    """The module as its own code makes it, with the weights of seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_key(0, "init"))
        model = case.make()
    complete_lazy_layers(model, image_shape=(3, 8, 8), seed=0)
    return model.double() if case.dtype == "float64" else model


def different(case: Case, expected: Trained, found: Trained) -> str:
    """What two trainings differ in beyond rounding, in words; empty if they are equal."""
    return _first_difference(expected, found, most=_TOLERANCES[case.dtype])


def differing_bits(expected: Trained, found: Trained) -> str:
    """What two trainings differ in at all."""
    return _first_difference(expected, found, most=0.0)


def _first_difference(expected: Trained, found: Trained, *, most: float) -> str:
    for update, (one, other) in enumerate(zip(expected.gradients, found.gradients, strict=True)):
        if difference := differing_arrays(one, other, most=most):
            return f"update {update}, gradient of {difference}"
    for update, states in enumerate(zip(expected.states, found.states, strict=True)):
        for part in ("model", "buffers", "optimiser"):
            arrays = (_arrays(getattr(state, part)) for state in states)
            if difference := differing_arrays(*arrays, most=most):
                return f"update {update}, {part} {difference}"
    error = np.abs(expected.losses - found.losses).max()
    return "" if error <= 1e3 * most else f"loss by {error:.1e}"


def differing_arrays(expected: Arrays, found: Arrays, *, most: float) -> str:
    """The array with the largest relative error above `most`, or one that only one side has."""
    if expected.keys() != found.keys():
        return f"names {sorted(expected.keys() ^ found.keys())}"
    if not expected:
        return ""
    ordered = {name: found[name] for name in expected}
    if shapes := [name for name in expected if expected[name].shape != ordered[name].shape]:
        return f"shape of {shapes[0]}"
    worst = worst_tensor(expected, ordered)
    return "" if worst.error <= most else f"{worst.name} by {worst.error:.1e}"


def _assembled(
    case: Case,
    layout: Layout,
    *,
    group: ReplicaGroup = ALONE,
    make: Callable[[], nn.Module] | None = None,
    given: bool = False,
    **options: Any,
) -> Assembly:
    recipe = _recipe(case, layout, **options)
    return assemble(
        recipe,
        data=_DATA,
        model=_built(case, recipe, make=make, given=given),
        plan=plan_training(recipe, samples=_SAMPLES),
        device=choose_device(recipe.device),
        group=group,
        # As in a training; on ranks it would only be the same comparison again.
        compares_cut=group.size == 1,
    )


def _built(case: Case, recipe: Recipe, *, make: Callable[[], nn.Module] | None, given: bool) -> nn.Module:
    """The module with the weights of its seed, in the type that it is compared in."""
    if given:
        module = rebuild_model(recipe, _DATA.spec)
        built = OwnModel(module, recipe)(_DATA.spec)
    elif make is not None:
        built = OwnModel(make, recipe)(_DATA.spec)
    else:
        built = rebuild_model(recipe, _DATA.spec)
    return built.double() if case.dtype == "float64" else built


def _recipe(case: Case, layout: Layout, **options: Any) -> Recipe:
    overrides = {
        "dataset": "digits",
        "model": f"{case.make.__module__}:{case.name}",
        "device": "cpu",
        "precision": "32.32",
        "compile": "off",
        "learning_rate": 0.1,
        "lr_schedule": "const",
        "num_epochs": 10,
        "max_updates": 8,
        "num_workers": 0,
        "validation": False,
        **options,
    }
    return resolve_recipe(overrides=overrides).recipe.model_copy(update=layout.recipe_changes())


def _all_gradients(program: TrainingProgram) -> Arrays:
    """The gradients of all stages, on the first rank."""
    own = {name: _array(view) for name, view in program.parameters.named_views(program.parameters.gradients)}
    devices = program.groups.devices
    if devices.size == 1:
        return own
    parts: list[Arrays] = devices.gather(own)
    return {name: array for part in parts or () for name, array in part.items()}


def _copied(state: ProgramState | None) -> ProgramState:
    if state is None:
        return ProgramState()
    return ProgramState(
        model=_clones(state.model), optimiser=_clones(state.optimiser), buffers=_clones(state.buffers)
    )


def _clones(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: _array(tensor) for name, tensor in tensors.items()}


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    plain = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    return plain.double().cpu().numpy().copy()


def _data() -> DataSplits:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (_SAMPLES, 8, 8, 3), dtype=np.uint8)
    labels = generator.integers(0, 5, _SAMPLES)
    spec = DataSpec(
        channels=3,
        height=8,
        width=8,
        num_classes=5,
        class_names=("a", "b", "c", "d", "e"),
        image_dtype="uint8",
    )
    return DataSplits(train=ArraySource(images=images, labels=labels), validation=None, test=None, spec=spec)


_DATA = _data()
