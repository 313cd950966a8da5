"""Times training samples of a recipe on its device, in a program that is thrown away afterwards."""

import time
from contextlib import closing
from math import ceil
from statistics import mean, median
from typing import Any

from drivetrain.assembly.training_parts import assemble
from drivetrain.console.reporter import Reporter
from drivetrain.core.progress import showing_progress
from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.data.splits import open_data
from drivetrain.plan.training_plan import plan_training
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ALONE
from drivetrain.recipe.schema import Recipe
from drivetrain.run.train import set_up_device

__all__ = ["one_training", "sample_seconds", "update_seconds"]

# A captured (CUDA graph) update runs twice normally and is recorded at its third run. Loader workers start
# during the first two as well.
_WARM_UPS = 3
_FEWEST, _MOST = 5, 50
_ENOUGH_S, _LONGEST_S = 1.0, 8.0


def sample_seconds(recipe: Recipe, *, reporter: Reporter) -> float:
    """Seconds of one training sample, in updates as the training will run them.

    Replicas and stages are timed as one process; on accelerators, each replica adds its own speed.
    """
    alone = recipe.model_copy(update=one_training(recipe))
    data = open_data(alone)
    plan = plan_training(alone, samples=len(data.train))
    with set_up_device(alone, ALONE) as device, showing_progress(reporter):
        assembly = assemble(alone, data=data, model=None, plan=plan, device=device)
        with closing(assembly.program.feed):
            update_s = update_seconds(assembly.program)
    sample_s = update_s / plan.batch.global_batch
    return sample_s if device.is_cpu else sample_s / recipe.replicas


def one_training(recipe: Recipe) -> dict[str, Any]:
    """A whole training in one process: without a limit of updates, and of cross-validations one fold.

    Its length is not chosen yet, so a log period that fits the length may not divide that of the recipe.
    Weights from elsewhere change no time, and are fetched only when the training starts.
    """
    fold = 0 if recipe.folds is not None and recipe.fold is None else recipe.fold
    one_process = {"replicas": 1, "devices": None, "stages": None, "dbn_replica_group_size": 1}
    logs = {"logs_per_epoch": "1", "log_every": None, "steps_per_execution": None}
    weights = {"pretrained": False, "init_from": None}
    return {**one_process, **logs, **weights, "max_updates": None, "fold": fold}


def update_seconds(program: TrainingProgram) -> float:
    """Seconds of an update, timed in a program that is thrown away afterwards."""
    program.model.train()
    updates = len(program.records)
    ahead = _updates_ahead(program)
    seconds: list[float] = []
    begun_s = time.perf_counter()
    for run in range(_WARM_UPS + _MOST + 2 * ahead):
        program.device.synchronise()
        began_s = time.perf_counter()
        program.run_update(run % updates)
        program.device.synchronise()
        ended_s = time.perf_counter()
        seconds.append(ended_s - began_s)
        is_steady = run >= _WARM_UPS + _FEWEST + 2 * ahead and sum(seconds[_WARM_UPS:]) > _ENOUGH_S
        # The first update is no measure where it compiles, or where libraries of an accelerator try their
        # algorithms for seconds.
        is_known = run >= _WARM_UPS or (program.device.is_cpu and not program.compiled.is_on)
        if is_steady or (is_known and ended_s - begun_s > _LONGEST_S):
            break
    return _steady_seconds(seconds[_WARM_UPS:] or seconds[-1:], ahead=ahead)


def _updates_ahead(program: TrainingProgram) -> int:
    """The updates whose batches loader workers have ready before the first one ends."""
    feed = program.feed
    batches = feed.batches_ahead if isinstance(feed, StreamFeed) else 0
    return ceil(batches / program.batches.accumulation)


def _steady_seconds(seconds: list[float], *, ahead: int) -> float:
    """Seconds of an update once loader workers no longer profit from their lead.

    Where batches come from loader workers, some updates wait and others do not, so the mean counts.
    """
    later = seconds[min(ahead, len(seconds) // 2) :]
    return mean(later) if ahead else median(later)
