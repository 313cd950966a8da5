"""A benchmark of training on several ranks: what the launching process does, and what each rank does."""

import os
import pickle
import tempfile
from dataclasses import dataclass
from pathlib import Path

from drivetrain.bench.subject import Subject
from drivetrain.bench.train import TrainMeasurement, measure_training
from drivetrain.cluster.devices import choose_device
from drivetrain.cluster.environment import find_place
from drivetrain.cluster.join import joined
from drivetrain.cluster.launch import launch
from drivetrain.cluster.rank_device import check_enough_devices
from drivetrain.cluster.rank_place import RankPlace
from drivetrain.data.source import DataSpec
from drivetrain.models.prepare import rebuild_model
from drivetrain.pipeline.stage_plan import check_cut
from drivetrain.recipe.layout import devices_per_replica, rank_count, stage_count
from drivetrain.run.reporter import Reporter

__all__ = ["launch_measurement", "measure_as_rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What every rank gets from the launching process; it travels by pickle."""

    subject: Subject
    quiet: bool
    outcome: Path


def launch_measurement(subject: Subject, *, spec: DataSpec, quiet: bool = False) -> TrainMeasurement:
    """Measures on as many ranks of this machine as the recipe's replicas have devices."""
    recipe = subject.recipe
    if stage_count(recipe) > 1:
        check_cut(recipe, rebuild_model(recipe, spec))
    check_enough_devices(recipe.device, replicas=recipe.replicas, per_replica=devices_per_replica(recipe))
    with tempfile.TemporaryDirectory() as folder:
        job = _Job(subject=subject, quiet=quiet, outcome=Path(folder) / "outcome")
        result = launch(_run_job, args=(job,), ranks=rank_count(recipe), threads_per_rank=recipe.num_threads)
        status = result.settle()
        if not job.outcome.is_file():
            # A signal came first, and nothing was measured.
            raise SystemExit(status)
        measured: TrainMeasurement = pickle.loads(job.outcome.read_bytes())
    return measured


def measure_as_rank(place: RankPlace, subject: Subject, *, quiet: bool = False) -> TrainMeasurement:
    """One rank's share of a measurement."""
    recipe = subject.recipe
    kind = choose_device(recipe.device).torch_device.type
    reporter = Reporter(verbosity=recipe.verbosity, quiet=quiet or place.rank > 0)
    with joined(place, device=kind) as group, reporter:
        return measure_training(subject, reporter=reporter, group=group)


def _run_job(job: _Job) -> int:
    place = find_place(os.environ)
    assert place is not None, "a launched rank finds its place in its environment"
    measured = measure_as_rank(place, job.subject, quiet=job.quiet)
    if place.rank == 0:
        job.outcome.write_bytes(pickle.dumps(measured))
    return 0
