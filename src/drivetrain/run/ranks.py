"""A training on several replicas: what the launching process does, and what each rank does."""

import copy
import os
import pickle
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from drivetrain.cluster.devices import check_enough_devices, choose_device
from drivetrain.cluster.environment import find_place
from drivetrain.cluster.join import joined
from drivetrain.cluster.launch import launch
from drivetrain.cluster.rank_place import RankPlace
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.models.prepare import rebuild_model
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.run.directory import RunDirectory
from drivetrain.run.files import read_json
from drivetrain.run.part import RunResult
from drivetrain.run.prepare import prepare_request
from drivetrain.run.reporter import Reporter
from drivetrain.run.train import architecture_of, train_request

__all__ = ["launch_training", "train_as_rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What every rank gets from the launching process; it travels by pickle."""

    resolved: ResolvedRecipe
    data: DataSplits | None
    model: nn.Module | None
    quiet: bool
    outcome: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What the first rank brings back: the result, its model by the weights alone."""

    values: dict[str, Any]
    weights: dict[str, Tensor]
    spec: DataSpec


def launch_training(
    resolved: ResolvedRecipe,
    *,
    data: DataSplits | None = None,
    model: nn.Module | None = None,
    quiet: bool = False,
) -> RunResult:
    """Trains on as many ranks of this machine as the recipe has replicas."""
    recipe = resolved.recipe
    check_enough_devices(choose_device(recipe.device), recipe.replicas)
    with tempfile.TemporaryDirectory() as folder:
        job = _Job(resolved=resolved, data=data, model=model, quiet=quiet, outcome=Path(folder) / "outcome")
        result = launch(
            _run_job,
            args=(job,),
            ranks=recipe.replicas,
            threads_per_rank=recipe.num_threads,
            max_restarts=recipe.max_restarts,
        )
        status = result.settle()
        outcome: _Outcome = pickle.loads(job.outcome.read_bytes())
    trained = copy.deepcopy(model) or rebuild_model(recipe, outcome.spec)
    trained.load_state_dict(outcome.weights)
    return RunResult(model=trained, exit_status=status, **outcome.values)


def train_as_rank(
    place: RankPlace,
    resolved: ResolvedRecipe,
    *,
    data: DataSplits | None = None,
    model: nn.Module | None = None,
    quiet: bool = False,
) -> RunResult:
    """One rank's share of a training; what is wrong with the request all ranks find before they meet."""
    if place.restart:
        # What failed has begun afresh already, and goes on from there.
        resolved = replace(resolved, recipe=resolved.recipe.model_copy(update={"overwrite": False}))
    recipe = resolved.recipe
    request = prepare_request(resolved, data=data, own_model=architecture_of(model))
    kind = choose_device(recipe.device).torch_device.type
    is_silent = quiet or (place.rank > 0 and not recipe.log_all_workers)
    reporter = Reporter(verbosity=recipe.verbosity, quiet=is_silent)
    with joined(place, device=kind) as group, reporter:
        return train_request(request, reporter=reporter, model=model, group=group)


def _run_job(job: _Job) -> int:
    place = find_place(os.environ)
    assert place is not None, "a launched rank finds its place in its environment"
    result = train_as_rank(place, job.resolved, data=job.data, model=job.model, quiet=job.quiet)
    if place.rank == 0:
        job.outcome.write_bytes(pickle.dumps(_outcome_of(result)))
    return result.exit_status


def _outcome_of(result: RunResult) -> _Outcome:
    weights = {name: value.cpu() for name, value in result.model.state_dict().items()}
    spec = DataSpec.from_json(read_json(RunDirectory(result.directory).data))
    names = ("directory", "status", "updates", "metrics")
    return _Outcome(values={name: getattr(result, name) for name in names}, weights=weights, spec=spec)
