"""How often a run validates where nobody said: so that it takes at most a fifth of the training time.

What is chosen by measured times is chosen once and kept in the run's plan, so that a continued run validates
at the same updates. Where validations decide when a training ends, no clock may choose them.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from drivetrain.plan.events import HostEvents, RarerEvaluation
from drivetrain.recipe.schema import Recipe
from drivetrain.run.crossval_directory import CrossvalDirectory
from drivetrain.run.directory import RunDirectory
from drivetrain.run.files import read_json, write_json

__all__ = [
    "VALIDATION_KEY",
    "PaceChoice",
    "ValidationPace",
    "fixed_by_option",
    "keep_rarer",
    "kept_rarer",
    "rarer_in_words",
]

VALIDATION_KEY = "validation"
_LARGEST_SHARE = 0.2
# Validations that take less than this in all are nothing to save.
_WORTH_SAVING_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceChoice:
    """What a run has chosen; `rarer` is None where it must not choose, `sentence` where nothing changes."""

    rarer: RarerEvaluation | None
    sentence: str | None


@dataclass(slots=True, kw_only=True)
class ValidationPace:
    """Watches what validations take beside updates from `first` on.

    `fixed_by` is an option for which they must stay where they are. A first validation may be slower than all
    others, so that only the second one can make them rarer.
    """

    events: HostEvents
    first: int = 0
    fixed_by: str | None = None
    is_open: bool = True
    _spent_s: float = 0.0
    _usual_s: float = math.inf
    _seen: int = 0

    def is_too_long(self, lasted_s: float, *, update_s: float) -> bool:
        """Whether a validation under way leaves too little of the time for the one at the end."""
        can_change = self.is_open and self.fixed_by is None
        return can_change and self._spent_s + lasted_s > max(_WORTH_SAVING_S, self._most_s(update_s) / 2)

    def break_off(self, update: int) -> PaceChoice:
        """What follows from a validation that took too long."""
        self.is_open = False
        rarer = RarerEvaluation(periods=self._period(update) - 1, times=0)
        why = "the validation was broken off: it takes too long beside the training."
        return PaceChoice(rarer=rarer, sentence=f"{why} From now on {rarer_in_words(self.events, rarer)}")

    def see(self, update: int, lasted_s: float, *, update_s: float) -> PaceChoice | None:
        """Takes the newest validation into account; None while nothing is chosen."""
        if not self.is_open:
            return None
        self._seen += 1
        self._spent_s += lasted_s
        self._usual_s = min(self._usual_s, lasted_s)
        times = self._affordable(update, update_s=update_s)
        if times != 1 and self._seen == 1:
            return None
        self.is_open = False
        rarer = RarerEvaluation(periods=self._period(update), times=times)
        sentence = None if times == 1 else self._sentence(rarer, update_s=update_s)
        return PaceChoice(rarer=None if self.fixed_by else rarer, sentence=sentence)

    def _most_s(self, update_s: float) -> float:
        return update_s * (self.events.total_updates - self.first) * _LARGEST_SHARE

    def _affordable(self, update: int, *, update_s: float) -> int:
        """Of how many validations one is to take place; 0 where only the last one may."""
        most_s = max(_WORTH_SAVING_S, self._most_s(update_s))
        times = 1
        while (count := self._count(update, times)) > 1:
            if self._spent_s + count * self._usual_s <= most_s:
                return times
            times *= 2
        return 1 if times == 1 else 0

    def _count(self, update: int, times: int) -> int:
        """The validations still to come, the last one included."""
        period = self.events.evaluate_updates * times
        return math.ceil(self.events.total_updates / period) - math.floor(update / period)

    def _period(self, update: int) -> int:
        return math.floor(update / self.events.evaluate_updates)

    def _sentence(self, rarer: RarerEvaluation, *, update_s: float) -> str:
        between_s = update_s * float(self.events.evaluate_updates)
        cost = f"a validation takes {self._usual_s:.2g} s, the training between two {between_s:.2g} s."
        if self.fixed_by is None:
            return f"{cost} From now on {rarer_in_words(self.events, rarer)}"
        every = self.events.total_updates
        if rarer.times:
            every = math.ceil(self.events.evaluate_updates * rarer.times)
        return (
            f"{cost} Validations stay where they are because {self.fixed_by} depends on them; "
            f"--evaluate-every {every} would save time."
        )


def rarer_in_words(events: HostEvents, rarer: RarerEvaluation) -> str:
    """When the model is validated, why, and how to have it otherwise."""
    when = "after the last update alone"
    if rarer.times:
        updates = float(events.evaluate_updates * rarer.times)
        number = f"{updates:.0f}" if updates.is_integer() else f"about {updates:.1f}"
        when = f"every {rarer.times} epochs ({number} updates) and after the last update"
    return (
        f"the model is validated {when}, so that this takes at most a fifth of the training time; "
        f"--evaluate-every {math.ceil(events.evaluate_updates)} validates after each epoch."
    )


def fixed_by_option(recipe: Recipe) -> str | None:
    """The option for which validations stay where they are, whatever they cost."""
    if recipe.patience is not None:
        return f"--patience {recipe.patience}"
    if recipe.stop_at is not None:
        return f"--stop-at {recipe.stop_at}"
    # Folds that train at the same time would choose apart, and their evaluations could not be averaged.
    return f"--parallel-folds {recipe.parallel_folds}" if recipe.parallel_folds > 1 else None


def kept_rarer(directory: RunDirectory, recipe: Recipe) -> RarerEvaluation | None:
    """What this run has chosen before, or another fold of its cross-validation."""
    job = CrossvalDirectory(directory.path.parent)
    folds = range(recipe.folds or 0) if recipe.fold is not None and job.holds_job else ()
    for run in (directory, *(job.fold(fold) for fold in folds)):
        kept = read_json(run.plan).get(VALIDATION_KEY) if run.plan.is_file() else None
        if kept is not None:
            return RarerEvaluation(**kept)
    return None


def keep_rarer(directory: RunDirectory, rarer: RarerEvaluation) -> None:
    """Writes a choice into the run's plan, where a continuation finds it."""
    plan: dict[str, Any] = read_json(directory.plan)
    write_json(directory.plan, plan | {VALIDATION_KEY: asdict(rarer)})
