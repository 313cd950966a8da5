"""How often a run validates if --evaluate-every is not given: at most a fifth of the training time.

The interval follows from measured times. It is chosen once and stored in the run's plan, so that a continued
run validates at the same updates; a training of another length chooses again. If validations decide when
the training ends (--patience, --stop-at), the interval never follows measured times: results would depend on
the speed of the machine.
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

# Largest share of the training time that validations may take (docs/architecture.md).
_LARGEST_SHARE = 0.2
# If all validations together take less than this, validating more rarely saves nothing worth mentioning.
_WORTH_SAVING_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceChoice:
    """The chosen interval; `rarer` is None if the run must not choose, `sentence` if nothing changes."""

    rarer: RarerEvaluation | None
    sentence: str | None


@dataclass(slots=True, kw_only=True)
class ValidationPace:
    """Compares the time of validations with that of updates from `first` on.

    `fixed_by` is an option that forbids changing the interval. The first validation may be slower than later
    ones, so normally the second one decides. If a validation cannot be interrupted
    (several replicas), there must be time for the second and the last one; else the first one decides.
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
        """Whether a running validation leaves too little time for the last one."""
        can_change = self.is_open and self.fixed_by is None
        return can_change and self._spent_s + lasted_s > max(_WORTH_SAVING_S, self._most_s(update_s) / 2)

    def break_off(self, update: int) -> PaceChoice:
        """The choice after a validation that was interrupted because it took too long."""
        self.is_open = False
        rarer = RarerEvaluation(periods=self._period(update) - 1, times=0)
        why = "the validation was interrupted because it takes too long compared to the training."
        return PaceChoice(rarer=rarer, sentence=f"{why} From now on {rarer_in_words(self.events, rarer)}.")

    def see(self, update: int, lasted_s: float, *, update_s: float) -> PaceChoice | None:
        """Takes the newest validation into account; None while the choice is still open."""
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
        """Whether there is time for a second validation as slow as the first, and for the last one."""
        most_s = max(_WORTH_SAVING_S, self._most_s(update_s))
        return self.can_break_off or self.fixed_by is not None or self._spent_s + 2 * self._usual_s <= most_s

    def _training_s(self, update_s: float) -> float:
        return update_s * (self.events.total_updates - self.first)

    def _most_s(self, update_s: float) -> float:
        return self._training_s(update_s) * _LARGEST_SHARE

    def _affordable(self, update: int, *, update_s: float) -> int:
        """n: only every n-th validation takes place; 0: only the last one does."""
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
            f"{cost} The interval stays the same because of {self.fixed_by}; "
            f"--evaluate-every {every} would save time."
        )

    def _share_in_words(self, rarer: RarerEvaluation, *, update: int, update_s: float) -> str:
        count = self._count(update, rarer.times) if rarer.times else 1
        cost_s, training_s = self._spent_s + count * self._usual_s, self._training_s(update_s)
        if cost_s <= training_s * _LARGEST_SHARE:
            return "This takes at most a fifth of the training time."
        return f"All validations together take about {cost_s:.2g} s, the training {training_s:.2g} s."


def rarer_in_words(events: HostEvents, rarer: RarerEvaluation) -> str:
    """When the model is validated, and the option that restores the usual interval."""
    when = "only after the last update"
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
    """The option that lets validations decide when the training ends; None if neither is given."""
    if recipe.patience is not None:
        return f"--patience {recipe.patience}"
    return None if recipe.stop_at is None else f"--stop-at {recipe.stop_at}"


def fixed_by_option(recipe: Recipe) -> str | None:
    """The option that forbids changing the validation interval, whatever it costs."""
    # Parallel folds would choose different intervals, and could not be averaged point by point.
    folds = f"--parallel-folds {recipe.parallel_folds}" if recipe.parallel_folds > 1 else None
    # Measured times differ between two runs.
    repeats = "--deterministic" if recipe.deterministic else None
    return decisive_option(recipe) or folds or repeats


def kept_rarer(directory: RunDirectory, recipe: Recipe) -> RarerEvaluation | None:
    """The interval that this run, or another fold of its cross-validation, chose for the same length."""
    job = CrossvalDirectory(directory.path.parent)
    folds = range(recipe.folds or 0) if recipe.fold is not None and job.holds_job else ()
    for run in (directory, *(job.fold(fold) for fold in folds)):
        kept = stored_plan(run.plan).get(VALIDATION_KEY)
        # Ignores plans edited by hand; plans of earlier versions have no length.
        with suppress(TypeError, KeyError, AttributeError):
            if kept is not None and kept.get("length", _length(recipe)) == _length(recipe):
                return RarerEvaluation(periods=kept["periods"], times=kept["times"])
    return None


def keep_rarer(directory: RunDirectory, recipe: Recipe, rarer: RarerEvaluation) -> None:
    """Stores a choice in the run's plan for a continued run."""
    kept = {**asdict(rarer), "length": _length(recipe)}
    write_json(directory.plan, stored_plan(directory.plan) | {VALIDATION_KEY: kept})


def _length(recipe: Recipe) -> dict[str, int | None]:
    """Options instead of updates: folds share their options but may differ in their number of updates."""
    return {"num_epochs": recipe.num_epochs, "max_updates": recipe.max_updates}
