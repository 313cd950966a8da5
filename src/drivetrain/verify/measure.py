"""Runs single weight updates in one layout, as one of its ranks, and returns the results as arrays.

Each update starts from the state that the one-process reference had before it.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from drivetrain.assembly.training_parts import assemble
from drivetrain.devices.device import choose_device
from drivetrain.models.from_recipe import rebuild_model
from drivetrain.models.parameter_hooks import copy_model
from drivetrain.plan.training_plan import plan_training
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.schema import Recipe
from drivetrain.state.own_state import own_state
from drivetrain.state.program_state import ProgramState, collect_state, load_state
from drivetrain.verify.cuts import Layout
from drivetrain.verify.subject import Subject

__all__ = [
    "CONTROL_FACTOR",
    "DtypeChoice",
    "DtypeName",
    "Measurement",
    "RankPart",
    "Starts",
    "Step",
    "dtypes_named",
    "measure_rank",
]

_PARTS = ("model", "optimiser", "averaged", "buffers")
# The fault of the negative control: small enough to be a serious test, and ten times the largest tolerance
# (see `_MOST_ROUNDING` in compare.py), so that it must be noticed.
CONTROL_FACTOR = 1.001
DtypeName = Literal["float32", "float64"]
DtypeChoice = Literal["float32", "float64", "both"]
Arrays = dict[str, NDArray[np.floating[Any]]]
ExactArrays = dict[str, NDArray[Any]]


# Rounding errors grow from update to update, at a rate that depends on the processor. Therefore single
# updates are compared, each from the same state, and never whole trainings.


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """A folder with the state before each update: the reference (`leads`) writes it, all others load it.

    A layout must initialise itself, so it loads states only from update `first` on, by default update 1.
    """

    folder: str
    leads: bool
    first: int = 1

    def begin(self, program: TrainingProgram, update: int) -> None:
        """Saves the state before an update, or loads it."""
        path = Path(self.folder) / f"{update}.safetensors"
        if self.leads:
            whole = collect_state(program)
            assert whole is not None, "who leads is alone"
            save_file(_named(whole), path)
        elif update >= self.first:
            load_state(program, _state_of(load_file(path)))


def _named(state: ProgramState) -> dict[str, Tensor]:
    return {
        f"{part}/{name}": value.detach().cpu().contiguous().clone()
        for part in _PARTS
        for name, value in getattr(state, part).items()
    }


def _state_of(tensors: dict[str, Tensor]) -> ProgramState:
    return ProgramState(**{part: _below(tensors, f"{part}/") for part in _PARTS})


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One update: its gradients, and the buffers, weights and optimiser state after it.

    `statistics` are the floating-point buffers, `counts` those of whole numbers and truth values.
    """

    gradients: Arrays
    statistics: Arrays
    counts: ExactArrays
    weights: Arrays
    optimiser: Arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The first and the last update, and the losses of all updates.

    `draws_from_torch`: the model drew random numbers from torch's global generator.
    """

    steps: tuple[Step, ...]
    losses: NDArray[np.float64]
    draws_from_torch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPart:
    """The result of one rank: a digest of its final state and, on the first rank, the measurement.

    Ranks with the same `device` hold the same stages, so their digests must be equal.
    """

    measurement: Measurement | None
    device: int
    digest: str


def dtypes_named(choice: DtypeChoice | None) -> tuple[DtypeName, ...]:
    """The dtypes of `--dtype`; none for None."""
    if choice is None:
        return ()
    return ("float32", "float64") if choice == "both" else (choice,)


def measure_rank(
    group: ReplicaGroup,
    subject: Subject,
    layout: Layout,
    dtype: DtypeName,
    spoilt: str | None = None,
    starts: Starts | None = None,
) -> RankPart:
    """Runs the subject's few updates as one rank of a layout, each from its saved state if `starts` is given.

    `spoilt` names a parameter whose gradient the last replica multiplies by `CONTROL_FACTOR`.
    """
    recipe = subject.recipe.model_copy(update=layout.recipe_changes())
    program = _build(subject, recipe=recipe, dtype=dtype, group=group)
    if spoilt is not None:
        _spoil(program, spoilt)
    assert recipe.max_updates is not None
    try:
        own = _run_updates(program, recipe.max_updates, starts=starts)
    finally:
        program.feed.close()
    last = own[-1]
    digest = _digest(*last.weights.values(), *last.statistics.values(), *last.counts.values())
    # The negative control compares gradients only; the rest would be sent for nothing.
    sent = own if spoilt is None else [_without_state(step) for step in own]
    steps = tuple(_collected(program, step) for step in sent)
    device = program.groups.devices.rank
    if not group.is_first:
        return RankPart(measurement=None, device=device, digest=digest)
    measurement = Measurement(
        steps=steps,
        losses=program.records.read("loss", 0, recipe.max_updates),
        draws_from_torch=_has_drawn() or bool(program.draws.facts.by_micro_batch),
    )
    return RankPart(measurement=measurement, device=device, digest=digest)


def _run_updates(program: TrainingProgram, updates: int, *, starts: Starts | None) -> list[Step]:
    """This rank's part of the first and of the last update."""
    program.model.train()
    steps = []
    for update in range(updates):
        if starts is not None:
            starts.begin(program, update)
        program.run_update(update)
        if update in (0, updates - 1):
            steps.append(_own_step(program))
    return steps


def _own_step(program: TrainingProgram) -> Step:
    parameters = program.parameters
    return Step(
        gradients=_copied(parameters.named_views(parameters.gradients)),
        statistics=_copied(_statistics(_own_buffers(program))),
        counts=_copied(_counts(_own_buffers(program))),
        weights=_copied(parameters.named_views(parameters.values)),
        optimiser=_copied(sorted(own_state(program).optimiser.items())),
    )


def _without_state(step: Step) -> Step:
    return Step(gradients=step.gradients, statistics={}, counts={}, weights={}, optimiser={})


def _spoil(program: TrainingProgram, name: str) -> None:
    """Scales a gradient on the rank of the last replica that holds the parameter."""
    replicas = program.groups.replicas
    is_here = any(segment.name == name for segment in program.parameters.segments)
    if is_here and replicas.rank == replicas.size - 1:
        program.model.get_parameter(name).register_hook(_lengthen)  # type: ignore[no-untyped-call]


def _collected(program: TrainingProgram, own: Step) -> Step:
    """The complete step on the first rank: gathers the parts from all ranks of the first replica."""
    groups = program.groups
    if groups.devices.size == 1 or groups.replicas.rank > 0:
        return own
    parts: list[Step] = groups.devices.gather(own)
    parameters = [name for name, _ in program.model.named_parameters()]
    # Buffers that no stage uses are the same on every rank, so the local ones complete the gathered ones.
    statistics = _copied(_statistics(program.model.named_buffers()))
    counts = _copied(_counts(program.model.named_buffers()))
    return Step(
        gradients=_merged([part.gradients for part in parts], names=parameters),
        statistics=_merged([statistics, *(part.statistics for part in parts)], names=statistics),
        counts=_merged([counts, *(part.counts for part in parts)], names=counts),
        weights=_merged([part.weights for part in parts], names=parameters),
        optimiser=_merged(
            [part.optimiser for part in parts],
            names=sorted({name for part in parts for name in part.optimiser}),
        ),
    )


def _merged(parts: Iterable[Arrays], *, names: Iterable[str]) -> Arrays:
    """All parts in one dict, ordered like `names`."""
    found = {name: array for part in parts for name, array in part.items()}
    return {name: found[name] for name in names if name in found}


def _lengthen(gradient: Tensor) -> Tensor:
    return gradient * CONTROL_FACTOR


def _build(subject: Subject, *, recipe: Recipe, dtype: DtypeName, group: ReplicaGroup) -> TrainingProgram:
    """The program that `train` would run, with the model in `dtype`."""
    if subject.model is None:
        model = rebuild_model(recipe, subject.data.spec)
        recipe = recipe.model_copy(update={"model_edit": ()})
    else:
        model = copy_model(subject.model)
    model = model.to(getattr(torch, dtype))
    if dtype == "float64":
        # Preprocessing stays in float32: it is the same in every layout, so only the model is widened.
        model.register_forward_pre_hook(_widen_images)
    return assemble(
        recipe,
        data=subject.data,
        model=model,
        plan=plan_training(recipe, samples=len(subject.data.train)),
        device=choose_device("cpu"),
        group=group,
    ).program


def _widen_images(_model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.double() if isinstance(value, Tensor) else value for value in inputs)


def _own_buffers(program: TrainingProgram) -> Iterable[tuple[str, Tensor]]:
    """The buffers of the stages on this rank."""
    stages = program.stages
    if stages is None or program.groups.devices.size == 1:
        return program.model.named_buffers()
    own = {name for stage in stages.own for name, _ in stages.cut.stages[stage].named_buffers()}
    return ((name, buffer) for name, buffer in program.model.named_buffers() if name in own)


def _statistics(buffers: Iterable[tuple[str, Tensor]]) -> Iterable[tuple[str, Tensor]]:
    """All floating-point buffers, which includes the statistics of user-defined normalisation layers."""
    for name, buffer in buffers:
        if buffer.is_complex():
            yield name, torch.view_as_real(buffer.detach().resolve_conj())
        elif buffer.is_floating_point():
            yield name, buffer


def _counts(buffers: Iterable[tuple[str, Tensor]]) -> Iterable[tuple[str, Tensor]]:
    """The buffers of whole numbers and truth values."""
    return (
        (name, buffer)
        for name, buffer in buffers
        if not buffer.is_floating_point() and not buffer.is_complex()
    )


def _copied(tensors: Iterable[tuple[str, Tensor]]) -> Arrays:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors}


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


def _has_drawn() -> bool:
    """Whether anything was drawn from torch's global generator since the program last seeded it."""
    fresh = torch.Generator().manual_seed(torch.default_generator.initial_seed())
    return not torch.equal(fresh.get_state(), torch.default_generator.get_state())
