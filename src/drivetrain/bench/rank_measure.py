"""Runs a benchmark on several ranks: the part of the launching process, and the part of each rank."""

import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from drivetrain.console.reporter import Reporter
from drivetrain.devices.device import choose_device
from drivetrain.ranks.find_place import find_place
from drivetrain.ranks.join import joined
from drivetrain.ranks.launch import launch
from drivetrain.ranks.launched_rank import launched_rank
from drivetrain.ranks.rank_device import check_enough_devices
from drivetrain.ranks.rank_place import RankPlace, Start, how_to_start
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.recipe.schema import Recipe

__all__ = ["RankMeasure", "measure_on_ranks"]

Found = TypeVar("Found", covariant=True)


class RankMeasure(Protocol[Found]):
    """One rank's part of a measurement; it is pickled and sent to the ranks."""

    def __call__(self, *, reporter: Reporter, group: ReplicaGroup) -> Found: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasureTask:
    """What the launching process sends to each rank, pickled."""

    measure: RankMeasure[Any]
    recipe: Recipe
    outcome: Path


def measure_on_ranks(
    measure: RankMeasure[Found],
    *,
    recipe: Recipe,
    devices_per_replica: int,
    place: RankPlace | None,
    reporter: Reporter,
) -> Found:
    """Measures in this process, on ranks that it starts, or as a rank that another process started."""
    ranks = recipe.replicas * devices_per_replica
    start = how_to_start(place, ranks=ranks)
    if start is Start.AS_RANK:
        assert place is not None
        with launched_rank(place):
            return _measure_as_rank(place, measure, recipe)
    if start is Start.ALONE:
        return measure(reporter=reporter, group=ALONE)
    check_enough_devices(recipe.device, replicas=recipe.replicas, per_replica=devices_per_replica)
    return _launch(measure, recipe, ranks=ranks)


def _launch(measure: Callable[..., Found], recipe: Recipe, *, ranks: int) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        task = _MeasureTask(measure=measure, recipe=recipe, outcome=Path(folder) / "outcome")
        status = launch(_run_rank, args=(task,), ranks=ranks, threads_per_rank=recipe.num_threads).settle()
        if not task.outcome.is_file():
            # The ranks were stopped by a signal before they had a result.
            raise SystemExit(status)
        found: Found = pickle.loads(task.outcome.read_bytes())
    return found


def _measure_as_rank(place: RankPlace, measure: RankMeasure[Found], recipe: Recipe) -> Found:
    kind = choose_device(recipe.device).torch_device.type
    reporter = Reporter(verbosity=recipe.verbosity, quiet=place.rank > 0)
    with joined(place, device=kind) as group, reporter:
        return measure(reporter=reporter, group=group)


def _run_rank(task: _MeasureTask) -> int:
    place = find_place(os.environ)
    assert place is not None, "a launched rank finds its place in its environment"
    found = _measure_as_rank(place, task.measure, task.recipe)
    if place.rank == 0:
        task.outcome.write_bytes(pickle.dumps(found))
    return 0
