"""How often a run validates where nobody said: so that it takes at most a fifth of the training time.

What is chosen by measured times is chosen once and kept in the run's plan, so that a continued run validates
at the same updates; a training of another length chooses again. Where validations decide when a training
ends, no clock may choose them, now or before.
"""

import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction

from drivetrain.core.files import write_json
from drivetrain.plan.events import HostEvents, RarerEvaluation
from drivetrain.recipe.schema import Recipe
from drivetrain.store.crossval_directory import CrossvalDirectory
from drivetrain.store.directory import RunDirectory
from drivetrain.store.stored_plan import VALIDATION_KEY, stored_plan

__all__ = [
    "PaceChoice",
    "ValidationPace",
    "decisive_option",
    "fixed_by_option",
    "keep_rarer",
    "kept_rarer",
    "rarer_in_words",
]

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
    others, so that only the second one can make them rarer; where a validation cannot be broken off, the
    second one must then fit, together with the last.
    """

    events: HostEvents
    first: int = 0
    fixed_by: str | None = None
    is_open: bool = True
    can_break_off: bool = True
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
        why = "the validation was broken off because it takes too long beside the training."
        return PaceChoice(rarer=rarer, sentence=f"{why} From now on {rarer_in_words(self.events, rarer)}.")

    def see(self, update: int, lasted_s: float, *, update_s: float) -> PaceChoice | None:
        """Takes the newest validation into account; None while nothing is chosen."""
        if not self.is_open:
            return None
        self._seen += 1
        self._spent_s += lasted_s
        self._usual_s = min(self._usual_s, lasted_s)
        times = self._affordable(update, update_s=update_s)
        if times != 1 and self._seen == 1 and self._may_wait(update_s):
            return None
        self.is_open = False
        rarer = RarerEvaluation(periods=self._period(update), times=times)
        sentence = None if times == 1 else self._sentence(rarer, update=update, update_s=update_s)
        return PaceChoice(rarer=None if self.fixed_by else rarer, sentence=sentence)

    def _may_wait(self, update_s: float) -> bool:
        """Whether there is time for a second validation, as long as the first, beside the last one."""
        most_s = max(_WORTH_SAVING_S, self._most_s(update_s))
        return self.can_break_off or self.fixed_by is not None or self._spent_s + 2 * self._usual_s <= most_s

    def _training_s(self, update_s: float) -> float:
        return update_s * (self.events.total_updates - self.first)

    def _most_s(self, update_s: float) -> float:
        return self._training_s(update_s) * _LARGEST_SHARE

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

    def _sentence(self, rarer: RarerEvaluation, *, update: int, update_s: float) -> str:
        between_s = update_s * float(self.events.evaluate_updates)
        cost = (
            f"a validation takes {self._usual_s:.2g} s, and the training between two validations takes "
            f"{between_s:.2g} s."
        )
        if self.fixed_by is None:
            share = self._share_in_words(rarer, update=update, update_s=update_s)
            return f"{cost} From now on {rarer_in_words(self.events, rarer)}. {share}"
        every = self.events.total_updates
        if rarer.times:
            every = math.ceil(self.events.evaluate_updates * rarer.times)
        return (
            f"{cost} Validations stay where they are because {self.fixed_by} depends on them; "
            f"--evaluate-every {every} would save time."
        )

    def _share_in_words(self, rarer: RarerEvaluation, *, update: int, update_s: float) -> str:
        count = self._count(update, rarer.times) if rarer.times else 1
        cost_s, training_s = self._spent_s + count * self._usual_s, self._training_s(update_s)
        if cost_s <= training_s * _LARGEST_SHARE:
            return "This takes at most a fifth of the training time."
        return f"All validations together take about {cost_s:.2g} s, the training {training_s:.2g} s."


def rarer_in_words(events: HostEvents, rarer: RarerEvaluation) -> str:
    """When the model is validated, and how to have it otherwise."""
    when = "after the last update alone"
    if rarer.times:
        period = events.evaluate_updates * rarer.times
        about = "" if period.denominator == 1 else "about "
        when = f"every {_epochs_in_words(events, period)} ({about}{float(period):.6g} updates) and after the "
        when += "last update"
    every = math.ceil(events.evaluate_updates)
    about = "" if every == events.evaluate_updates else "about "
    usual = _epochs_in_words(events, events.evaluate_updates)
    return f"the model is validated {when}; --evaluate-every {every} validates {about}every {usual}"


def _epochs_in_words(events: HostEvents, updates: Fraction) -> str:
    epochs = f"{float(updates) / (events.logs_per_epoch * events.log_updates):.4g}"
    return "epoch" if epochs == "1" else f"{epochs} epochs"


def decisive_option(recipe: Recipe) -> str | None:
    """The option by which validations decide when the training ends."""
    if recipe.patience is not None:
        return f"--patience {recipe.patience}"
    return None if recipe.stop_at is None else f"--stop-at {recipe.stop_at}"


def fixed_by_option(recipe: Recipe) -> str | None:
    """The option for which validations stay where they are, whatever they cost."""
    # Folds that train at the same time would choose apart, and their evaluations could not be averaged.
    folds = f"--parallel-folds {recipe.parallel_folds}" if recipe.parallel_folds > 1 else None
    return decisive_option(recipe) or folds


def kept_rarer(directory: RunDirectory, recipe: Recipe) -> RarerEvaluation | None:
    """What this run has chosen before for its length, or another fold of its cross-validation."""
    job = CrossvalDirectory(directory.path.parent)
    folds = range(recipe.folds or 0) if recipe.fold is not None and job.holds_job else ()
    for run in (directory, *(job.fold(fold) for fold in folds)):
        kept = stored_plan(run.plan).get(VALIDATION_KEY)
        # A plan that was changed by hand; runs of earlier versions kept no length.
        with suppress(TypeError, KeyError, AttributeError):
            if kept is not None and kept.get("length", _length(recipe)) == _length(recipe):
                return RarerEvaluation(periods=kept["periods"], times=kept["times"])
    return None


def keep_rarer(directory: RunDirectory, recipe: Recipe, rarer: RarerEvaluation) -> None:
    """Writes a choice into the run's plan, where a continuation finds it."""
    kept = {**asdict(rarer), "length": _length(recipe)}
    write_json(directory.plan, stored_plan(directory.plan) | {VALIDATION_KEY: kept})


def _length(recipe: Recipe) -> dict[str, int | None]:
    """As the options say it: all folds of a job have the same, though not the same number of updates."""
    return {"num_epochs": recipe.num_epochs, "max_updates": recipe.max_updates}
