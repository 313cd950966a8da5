"""What ranks of a pool do in the tests of pipelines; they import it by name."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from drivetrain.assembly.training_parts import Assembly, assemble
from drivetrain.core.errors import RunFailedError
from drivetrain.data.splits import split_user_data
from drivetrain.devices.device import choose_device
from drivetrain.plan.training_plan import plan_training
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.recipe.layout import devices_per_replica
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from drivetrain.state.checkpoint_writer import CheckpointWriter
from drivetrain.state.program_state import ProgramState, collect_state, share_parts
from drivetrain.state.saver import copy_sound_state, restore_program, stored_state
from drivetrain.store.checkpoint import newest_checkpoint
from drivetrain.verify.measure import Starts
from tests.pipeline.staged import KINDS, narrow_model

Arrays = dict[str, NDArray[Any]]
GLOBAL_BATCH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a rank has: gradients of the first update and the last, the state after that, all losses."""

    gradients: Arrays
    last_gradients: Arrays
    state: Arrays
    optimiser: Arrays
    averaged: Arrays
    losses: NDArray[np.float64]
    bytes_sent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A small training; `options` are those of a recipe, `samples` the length of an epoch.

    With `starts` each update begins in the state that another program had before it.
    """

    kind: str
    options: dict[str, Any]
    dtype: torch.dtype = torch.float64
    updates: int = 2
    samples: int = GLOBAL_BATCH
    micro: int = 2
    starts: Starts | None = None

    def recipe(self) -> Recipe:
        given = {
            "model": self.kind,
            "model_params": dict(KINDS[self.kind].params),
            "micro_batch_size": self.micro,
            "global_batch_size": GLOBAL_BATCH,
            "learning_rate": 0.001,
            "max_updates": self.updates,
            "num_epochs": 100,
            "seed": 3,
            "device": "cpu",
            "validation": False,
            "precision": "32.32",
        }
        return resolve_recipe(overrides={**given, **self.options}).recipe


def build(group: ReplicaGroup, job: Job) -> Assembly:
    """The job's program as one rank has it."""
    recipe = job.recipe()
    data = split_user_data(
        recipe,
        train=_samples(job.kind, job.samples, seed=0),
        validation=_samples(job.kind, 11, seed=1) if recipe.validation else None,
    )
    return assemble(
        recipe,
        data=data,
        model=_model(job),
        plan=plan_training(recipe, samples=job.samples),
        device=choose_device("cpu"),
        group=group,
    )


def program_of(group: ReplicaGroup, job: Job) -> TrainingProgram:
    """The job's program alone."""
    return build(group, job).program


def measure(group: ReplicaGroup, job: Job) -> Measured:
    """Trains the job's few updates."""
    program = program_of(group, job)
    program.model.train()
    gradients = []
    for update in range(job.updates):
        if job.starts is not None:
            job.starts.begin(program, update)
        program.run_update(update)
        gradients.append(_copied(program.parameters.named_views(program.parameters.gradients)))
    own = collect_state(program) or ProgramState()
    channel = getattr(getattr(program.passes, "executor", None), "channel", None)
    return Measured(
        gradients=gradients[0],
        last_gradients=gradients[-1],
        state=_copied(own.model.items()),
        optimiser=_copied(own.optimiser.items()),
        averaged=_copied(own.averaged.items()),
        losses=program.records.read("loss", 0, job.updates),
        bytes_sent=getattr(channel, "bytes_sent", 0),
    )


def measure_over_ranks(pool: RankPool, job: Job) -> Measured:
    """What all ranks have together; the replicas of every stage must have the same bits."""
    recipe = job.recipe()
    devices = devices_per_replica(recipe)
    found: list[Measured] = pool.run(measure, job, ranks=recipe.replicas * devices)
    for rank, part in enumerate(found):
        assert part.losses.tobytes() == found[0].losses.tobytes()
        _check_equal(part.gradients, found[rank % devices].gradients)
    return Measured(
        gradients=_merged([part.gradients for part in found[:devices]]),
        last_gradients=_merged([part.last_gradients for part in found[:devices]]),
        state=found[0].state,
        optimiser=found[0].optimiser,
        averaged=found[0].averaged,
        losses=found[0].losses,
        bytes_sent=sum(part.bytes_sent for part in found[:devices]),
    )


def measure_alone(job: Job) -> Measured:
    """What one process has."""
    return measure(ALONE, job)


def measure_both(pool: RankPool, *, alone: Job, cut: Job) -> tuple[Measured, Measured]:
    """What one process and a cut have, which begins each update in the state that the one process had.

    Two trainings would measure the processor, as rounding grows from update to update.
    """
    with TemporaryDirectory() as folder:
        expected = measure_alone(replace(alone, starts=Starts(folder=folder, leads=True)))
        found = measure_over_ranks(pool, replace(cut, starts=Starts(folder=folder, leads=False)))
    return expected, found


def poison(group: ReplicaGroup, job: Job, parameter: str) -> tuple[str, bool]:
    """The error of an update in which one gradient is not finite, and whether all weights stayed."""
    program = program_of(group, job)
    weight = program.model.get_parameter(parameter)
    if weight.grad is not None:
        weight.register_hook(lambda gradient: gradient * torch.nan)  # type: ignore[no-untyped-call]
    before = program.parameters.values.clone()
    program.model.train()
    try:
        program.run_update(0)
    except RunFailedError as error:
        return str(error), torch.equal(before, program.parameters.values)
    return "", False


def validate(group: ReplicaGroup, job: Job) -> tuple[dict[str, float], dict[str, float]]:
    """What validation says before and after two updates."""
    assembly = build(group, job)
    assert assembly.evaluate is not None
    before = assembly.evaluate().as_metrics()
    program = assembly.program
    program.execute(0, 2, goes_on=lambda _: True)
    with program.weights_to_measure():
        return before, assembly.evaluate().as_metrics()


def carry_on(group: ReplicaGroup, job: Job, source: str | None, target: str) -> None:
    """Takes over a checkpoint, or else trains; then writes one, as a run does."""
    program = program_of(group, job)
    if source is None:
        program.execute(0, job.updates, goes_on=lambda _: True)
    else:
        checkpoint, problems = newest_checkpoint(Path(source))
        assert checkpoint is not None, problems
        if program.groups.devices.size > 1:
            share_parts(program, stored_state(checkpoint) if group.is_first else None)
        else:
            restore_program(program, checkpoint)
    copied = copy_sound_state(program, update=job.updates)
    if copied is not None:
        with CheckpointWriter(Path(target), keep_last=1) as writer:
            writer.start(copied, update=job.updates, state={}, best_update=None)


def cut_options(
    kind: str, *, device_of: tuple[int, ...], schedule: str = "1f1b", **options: Any
) -> dict[str, Any]:
    """The options that cut one of the four models as the tests do."""
    return {
        "pipeline_splits": list(KINDS[kind].splits[len(device_of)]),
        "device_mapping": list(device_of),
        "pipeline_schedule": schedule,
        **options,
    }


def _model(job: Job) -> nn.Module:
    kind = KINDS[job.kind]
    model = narrow_model(kind).to(job.dtype)
    if job.dtype == torch.float64:
        model.register_forward_pre_hook(_widen)
    return model


def _widen(_model: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(value.double() for value in inputs)


def _samples(kind_name: str, samples: int, *, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    kind = KINDS[kind_name]
    generator = np.random.default_rng(seed)
    side = kind.label_size or kind.image_size
    images = generator.integers(0, 256, (samples, side, side, kind.channels), dtype=np.uint8)
    if kind.label_size is None:
        return images, np.arange(samples) % 10
    masks = generator.integers(0, 2, (samples, side, side), dtype=np.uint8)
    masks[:, 0, 0] = 1
    return images, masks


def _merged(parts: Iterable[Arrays]) -> Arrays:
    return {name: value for part in parts for name, value in part.items()}


def _copied(tensors: Iterable[tuple[str, Tensor]]) -> Arrays:
    return {name: value.detach().double().numpy().copy() for name, value in tensors}


def _check_equal(one: Arrays, other: Arrays) -> None:
    assert one.keys() == other.keys()
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)
