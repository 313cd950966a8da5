"""What one layout computes in single updates, each from the state that one process had, as plain numbers."""

import copy
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
from drivetrain.plan.training_plan import plan_training
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.schema import Recipe
from drivetrain.state.own_state import own_state
from drivetrain.state.program_state import ProgramState, collect_state, load_state
from drivetrain.verify.cuts import Layout
from drivetrain.verify.subject import Subject

__all__ = ["CONTROL_FACTOR", "DtypeName", "Measurement", "RankPart", "Starts", "Step", "measure_rank"]

_PARTS = ("model", "optimiser", "averaged", "buffers")
CONTROL_FACTOR = 1.001
DtypeName = Literal["float32", "float64"]
Arrays = dict[str, NDArray[np.floating[Any]]]


# The states in which one process began its updates, and from which every layout begins the same ones.
#
# Rounding grows from update to update at a pace that depends on the processor. So single updates are
# compared, each from equal states, and never two trainings.


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """A folder with a file for each update; the one process that leads writes them, all others follow.

    A layout must reach the state before update 0 by itself: it follows from update 1 on.
    """

    folder: str
    leads: bool
    first: int = 1

    def begin(self, program: TrainingProgram, update: int) -> None:
        """Notes the state before an update, or takes it over."""
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
    """One update: its gradients, and the batch-norm statistics, weights and optimiser's state after it."""

    gradients: Arrays
    statistics: Arrays
    weights: Arrays
    optimiser: Arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The first update and the last, and the losses of all.

    `draws_from_torch` tells that the model used torch's own generator.
    """

    steps: tuple[Step, ...]
    losses: NDArray[np.float64]
    draws_from_torch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPart:
    """What one rank hands back: the first one the measurement, all a digest of what they ended with.

    Ranks of the same `device` hold the same stages, so that they must end alike.
    """

    measurement: Measurement | None
    device: int
    digest: str


def measure_rank(
    group: ReplicaGroup,
    subject: Subject,
    layout: Layout,
    dtype: DtypeName,
    spoilt: str | None = None,
    starts: Starts | None = None,
) -> RankPart:
    """Computes the subject's few updates as one rank of a layout, each from its noted start if there are any.

    The gradient of the parameter `spoilt` leaves the last replica's backward passes a thousandth too long.
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
    digest = _digest(*own[-1].weights.values(), *own[-1].statistics.values())
    steps = tuple(_collected(program, step) for step in own)
    device = program.groups.devices.rank
    if not group.is_first:
        return RankPart(measurement=None, device=device, digest=digest)
    measurement = Measurement(
        steps=steps,
        losses=program.records.read("loss", 0, recipe.max_updates),
        draws_from_torch=_has_drawn(),
    )
    return RankPart(measurement=measurement, device=device, digest=digest)


def _run_updates(program: TrainingProgram, updates: int, *, starts: Starts | None) -> list[Step]:
    """What this rank has of the first update and of the last."""
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
        statistics=_copied(_own_statistics(program)),
        weights=_copied(parameters.named_views(parameters.values)),
        optimiser=_copied(sorted(own_state(program).optimiser.items())),
    )


def _spoil(program: TrainingProgram, name: str) -> None:
    """Makes a gradient too long on the one rank that has the parameter and is of the last replica."""
    replicas = program.groups.replicas
    is_here = any(segment.name == name for segment in program.parameters.segments)
    if is_here and replicas.rank == replicas.size - 1:
        program.model.get_parameter(name).register_hook(_lengthen)  # type: ignore[no-untyped-call]


def _collected(program: TrainingProgram, own: Step) -> Step:
    """The whole of it, on the first rank; where a replica has several ranks, those of the first one meet."""
    groups = program.groups
    if groups.devices.size == 1 or groups.replicas.rank > 0:
        return own
    parts: list[Step] = groups.devices.gather(own)
    parameters = [name for name, _ in program.model.named_parameters()]
    # What no stage uses stays as every rank has it.
    statistics = _copied(_statistics(program.model))
    return Step(
        gradients=_merged([part.gradients for part in parts], names=parameters),
        statistics=_merged([statistics, *(part.statistics for part in parts)], names=statistics),
        weights=_merged([part.weights for part in parts], names=parameters),
        optimiser=_merged(
            [part.optimiser for part in parts],
            names=sorted({name for part in parts for name in part.optimiser}),
        ),
    )


def _merged(parts: Iterable[Arrays], *, names: Iterable[str]) -> Arrays:
    """The parts together, in the order that they have in the model."""
    found = {name: array for part in parts for name, array in part.items()}
    return {name: found[name] for name in names if name in found}


def _lengthen(gradient: Tensor) -> Tensor:
    return gradient * CONTROL_FACTOR


def _build(subject: Subject, *, recipe: Recipe, dtype: DtypeName, group: ReplicaGroup) -> TrainingProgram:
    """The program that `train` would run, of a model in the wanted type."""
    if subject.model is None:
        model = rebuild_model(recipe, subject.data.spec)
        recipe = recipe.model_copy(update={"model_edit": ()})
    else:
        model = copy.deepcopy(subject.model)
    model = model.to(getattr(torch, dtype))
    if dtype == "float64":
        # Samples are prepared in float32, which every layout does alike.
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


def _own_statistics(program: TrainingProgram) -> Iterable[tuple[str, Tensor]]:
    """What the stages of this rank keep beside their weights."""
    stages = program.stages
    if stages is None or program.groups.devices.size == 1:
        return _statistics(program.model)
    own = {name for stage in stages.own for name, _ in stages.cut.stages[stage].named_buffers()}
    return ((name, buffer) for name, buffer in _statistics(program.model) if name in own)


def _statistics(model: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """What a model keeps beside its weights, a user's own kinds of norms included."""
    return ((name, buffer) for name, buffer in model.named_buffers() if buffer.is_floating_point())


def _copied(tensors: Iterable[tuple[str, Tensor]]) -> Arrays:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors}


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


def _has_drawn() -> bool:
    """Whether torch's generator has moved since the program last seeded it."""
    fresh = torch.Generator().manual_seed(torch.default_generator.initial_seed())
    return not torch.equal(fresh.get_state(), torch.default_generator.get_state())
