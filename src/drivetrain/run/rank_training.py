"""Training on several ranks: the launching process, and the work of each rank."""

import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.data.preprocess import build_preparation
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.devices.device import choose_device
from drivetrain.models.from_recipe import rebuild_model
from drivetrain.models.kept_values import give_own_memory
from drivetrain.models.module_values import note_moving
from drivetrain.models.modules import take_over_unsaved, unsaved_buffers, unsaved_values
from drivetrain.models.parameter_hooks import carry_hooks, copy_model
from drivetrain.pipeline.cutting.stage_plan import check_cut
from drivetrain.ranks.find_place import find_place
from drivetrain.ranks.join import joined
from drivetrain.ranks.launch import launch
from drivetrain.ranks.rank_device import check_enough_devices
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.ranks.sendable import ByValue, require_sendable
from drivetrain.recipe.fields import fields_with, plain_values, written_value
from drivetrain.recipe.layout import devices_per_replica, rank_count, stage_count
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.notes import Fact
from drivetrain.recipe.schema import Recipe
from drivetrain.run.request import Request, prepare_request
from drivetrain.run.session import RunResult
from drivetrain.run.train import architecture_of, train_request
from drivetrain.store.tensor_file import read_tensors, write_tensors

__all__ = ["launch_training", "train_as_rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankTask:
    """What the launching process sends to every rank, pickled."""

    resolved: ResolvedRecipe
    data: DataSplits | None
    model: nn.Module | None
    quiet: bool
    outcome: Path
    began_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What rank 0 returns to the launching process, pickled.

    The tensors of the model are in two files beside it; `weights` and `buffers` are their checksums.
    """

    values: dict[str, Any]
    spec: DataSpec
    weights: dict[str, Any]
    buffers: dict[str, Any]


def launch_training(
    resolved: ResolvedRecipe,
    *,
    spec: DataSpec,
    data: DataSplits | None = None,
    model: nn.Module | None = None,
    quiet: bool = False,
    began_s: float,
) -> RunResult:
    """Trains on local ranks, one per device of each replica; --max-time counts from `began_s` on."""
    recipe = resolved.recipe
    if stage_count(recipe) > 1:
        preparation = build_preparation(recipe, spec)
        shape = (preparation.channels, preparation.height, preparation.width)
        check_cut(recipe, model or rebuild_model(recipe, spec), image_shape=shape)
    check_enough_devices(recipe.device, replicas=recipe.replicas, per_replica=devices_per_replica(recipe))
    if model is not None:
        carry_hooks(model)
        require_sendable(model, what="The model")
    if data is not None:
        require_sendable(data, what="The data set")
    _say(f"starting {_ranks_in_words(recipe)}", recipe, quiet=quiet)
    with tempfile.TemporaryDirectory() as folder:
        task = _RankTask(
            resolved=resolved,
            data=data,
            model=model,
            quiet=quiet,
            outcome=Path(folder) / "outcome",
            began_s=began_s,
        )
        result = launch(
            _run_rank,
            args=(ByValue(task),),
            ranks=rank_count(recipe),
            threads_per_rank=recipe.num_threads,
            max_restarts=recipe.max_restarts,
        )
        status = result.settle()
        if not task.outcome.is_file():
            _say("stopped before the first update: nothing was saved.", recipe, quiet=quiet)
            return _stopped_at_the_start(resolved, model=model, exit_status=status)
        outcome: _Outcome = pickle.loads(task.outcome.read_bytes())
        trained = rebuild_model(recipe, outcome.spec) if model is None else copy_model(model)
        _load_model(trained, outcome, task.outcome)
    own_status = outcome.values.pop("exit_status")
    return RunResult(model=trained, exit_status=status or own_status, **outcome.values)


def _ranks_in_words(recipe: Recipe) -> str:
    ranks, stages = rank_count(recipe), stage_count(recipe)
    replicas = f"{recipe.replicas} replica{'s' if recipe.replicas > 1 else ''}"
    return f"{ranks} ranks ({replicas}{f' with {stages} stages' if stages > 1 else ''})"


def _say(text: str, recipe: Recipe, *, quiet: bool) -> None:
    """Prints a line of the launching process; only before the ranks start and after they end."""
    with Reporter(verbosity=recipe.verbosity, quiet=quiet) as reporter:
        reporter.say(text)


def train_as_rank(
    place: RankPlace,
    request: Request,
    *,
    model: nn.Module | None = None,
    quiet: bool = False,
    on_claimed: Callable[[], None] | None = None,
) -> RunResult:
    """The work of one rank. Every rank has checked the request before, so all fail before they join."""
    recipe = request.recipe
    kind = choose_device(recipe.device).torch_device.type
    is_silent = quiet or (place.rank > 0 and not recipe.log_all_workers)
    reporter = Reporter(verbosity=recipe.verbosity, quiet=is_silent)
    with joined(place, device=kind) as group, reporter:
        _require_agreement(request, group, device=kind)
        return train_request(request, reporter=reporter, model=model, group=group, on_claimed=on_claimed)


def _require_agreement(request: Request, group: ReplicaGroup, *, device: str) -> None:
    """Refuses ranks that another launcher (such as torchrun) started with different options or devices."""
    of_a_host = fields_with(Fact.PER_HOST)
    own = {
        **request.identity,
        **{name: value for name, value in plain_values(request.recipe).items() if name not in of_a_host},
        "device": device,
        "total_updates": request.plan.epochs.total_updates,
        "validation_samples": 0 if request.data.validation is None else len(request.data.validation),
        "unreadable_samples": [(bad.split, bad.index) for bad in request.data.bad_samples],
    }
    for rank, other in enumerate(group.gather(own)):
        for name, value in own.items():
            if other.get(name) != value:
                raise BadInputError(
                    f"rank {group.rank} has {name} {written_value(value)}, but rank {rank} has "
                    f"{written_value(other.get(name))}; start all ranks with the same command on the same "
                    "data."
                )


def _stopped_at_the_start(
    resolved: ResolvedRecipe, *, model: nn.Module | None, exit_status: int
) -> RunResult:
    """The result if a signal arrived before the ranks started: nothing was trained."""
    directory = Path(resolved.recipe.output_dir or ".")
    return RunResult(
        directory=directory,
        status="stopped",
        updates=0,
        metrics={},
        model=model or nn.Module(),
        exit_status=exit_status,
    )


def _run_rank(packed: ByValue[_RankTask]) -> int:
    task = packed.value
    place = find_place(os.environ)
    assert place is not None, "a launched rank finds its place in its environment"
    claimed = task.outcome.with_name("claimed")
    resolved = task.resolved
    if place.restart and claimed.exists():
        # The failed attempt has already overwritten the old run; the restart must continue the new one.
        resolved = replace(resolved, recipe=resolved.recipe.model_copy(update={"overwrite": False}))
    # Storages that come from torch.load (2.11 to 2.13) cannot be resized to 0, which `let_go` in
    # state/program_state.py does; a copy can.
    task = replace(task, model=None if task.model is None else copy_model(task.model))
    request = prepare_request(
        resolved, data=task.data, own_model=lambda _: architecture_of(task.model), began_s=task.began_s
    )
    result = train_as_rank(place, request, model=task.model, quiet=task.quiet, on_claimed=claimed.touch)
    if place.rank == 0:
        task.outcome.write_bytes(pickle.dumps(_outcome_of(result, spec=request.data.spec, path=task.outcome)))
    # A training that finished counts as success: files skipped by --predict-after must not restart it.
    return 0 if result.status == "finished" else result.exit_status


def _outcome_of(result: RunResult, *, spec: DataSpec, path: Path) -> _Outcome:
    """Writes the tensors to files of their own: pickling a view would store the whole vector behind it."""
    names = ("directory", "status", "updates", "metrics", "exit_status")
    return _Outcome(
        values={name: getattr(result, name) for name in names},
        spec=spec,
        weights=write_tensors(_weights_path(path), result.model.state_dict()),
        buffers=write_tensors(_buffers_path(path), unsaved_values(result.model)),
    )


def _load_model(model: nn.Module, outcome: _Outcome, path: Path) -> None:
    give_own_memory(model)
    model.load_state_dict(read_tensors(_weights_path(path), outcome.weights))
    unsaved = read_tensors(_buffers_path(path), outcome.buffers)
    take_over_unsaved(model, unsaved)
    note_moving(model, unsaved.keys() - unsaved_buffers(model).keys())


def _weights_path(outcome: Path) -> Path:
    return outcome.with_name("weights")


def _buffers_path(outcome: Path) -> Path:
    return outcome.with_name("buffers")
