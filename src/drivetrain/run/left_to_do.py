"""Reads from the run directory what is left to do: train on, only validate, or nothing."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from drivetrain.console.reporter import Reporter
from drivetrain.plan.events import RarerEvaluation
from drivetrain.recipe.ending import ended_by_options
from drivetrain.run.loop.validation_pace import decisive_option, keep_rarer, kept_rarer, rarer_in_words
from drivetrain.run.request import Request
from drivetrain.store.best import Best, best_metric
from drivetrain.store.checkpoint import Checkpoint
from drivetrain.store.metrics_file import read_metrics

__all__ = ["TaskLeft", "finishing_event", "training_left"]


@dataclass(frozen=True, slots=True)
class TaskLeft:
    """What the first replica found left to do in the run directory: "train", "validate" or "nothing".

    The first replica sends it to all others, so that every rank starts at the same update.
    """

    what: str
    first: int = 0
    best: Best | None = None
    _: KW_ONLY
    without_progress: int = 0
    owes_validation: bool = False
    rarer: RarerEvaluation | None = None


def finishing_event(request: Request) -> dict[str, Any] | None:
    """The summary event of a finished run; None if updates, or only the summary itself, are missing."""
    entries = read_metrics(request.directory.metrics)
    summaries = [entry for entry in entries if entry["event"] == "summary"]
    if not summaries:
        return None
    last = summaries[-1]
    ended_as_asked = last.get("ended_by") in ended_by_options(request.recipe)
    is_whole = int(last["update"]) >= request.plan.epochs.total_updates
    return last if is_whole or ended_as_asked else None


def training_left(
    request: Request,
    checkpoint: Checkpoint | None,
    entries: list[dict[str, Any]],
    *,
    validates: bool,
    reporter: Reporter,
) -> TaskLeft:
    """The training that continues from a checkpoint; `entries` are the events up to that checkpoint."""
    first = 0 if checkpoint is None else checkpoint.update
    stored = None if checkpoint is None else checkpoint.manifest["state"]["best"]
    fresh = Best(best_metric(request.recipe, task=request.data.spec.task))
    best = fresh if stored is None else Best.from_json(stored)
    validated = [int(entry["update"]) for entry in entries if entry["event"] == "validation"]
    rarer = _kept_rarer(request, reporter)
    # The run may have been killed between an update and its validation.
    is_due = first > 0 and replace(request.plan.events, rarer=rarer).is_evaluation(first)
    return TaskLeft(
        "train",
        first,
        best,
        without_progress=sum(update > (best.update or 0) for update in validated),
        owes_validation=validates and is_due and first not in validated,
        rarer=rarer,
    )


def _kept_rarer(request: Request, reporter: Reporter) -> RarerEvaluation | None:
    """The validation interval that the run chose before; None if an option of the user decides it now."""
    events = request.plan.events
    if events.evaluation_is_asked_for or decisive_option(request.recipe) is not None:
        return None
    rarer = kept_rarer(request.directory, request.recipe)
    if rarer is not None:
        keep_rarer(request.directory, request.recipe, rarer)
        if rarer.times != 1:
            reporter.say(f"as chosen earlier in this run, {rarer_in_words(events, rarer)}.")
    return rarer
