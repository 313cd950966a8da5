"""How many weight updates an epoch and the whole training have, and which samples they leave out."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.layout import BatchArithmetic
from drivetrain.recipe.schema import Remainder

MOST_UPDATES = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """The length of an epoch and of the training, in updates.

    `weight_updates` is the whole number of updates of an epoch; under `carry` an epoch may end inside an
    update, and `updates_per_epoch` is its true length.
    """

    samples: int
    updates_per_epoch: Fraction
    weight_updates: int
    micro_batches: int
    samples_unused: int
    num_epochs: int
    total_updates: int
    remainder: Remainder
    warnings: tuple[str, ...] = ()

    @property
    def updates_of_all_epochs(self) -> int:
        """What `num_epochs` amount to, before --max-updates."""
        return floor(self.num_epochs * self.updates_per_epoch)

    def epoch_of(self, update: int) -> int:
        """How many epochs `update` finished updates complete: the epoch, from 0, the next one begins in."""
        return floor(update / self.updates_per_epoch)


def plan_epochs(
    *,
    samples: int,
    batch: BatchArithmetic,
    remainder: Remainder,
    weight_updates_per_epoch: int | None,
    num_epochs: int,
    max_updates: int | None,
) -> EpochPlan:
    """The epochs of `samples` training samples in batches of `batch`."""
    asked = None if weight_updates_per_epoch == -1 else weight_updates_per_epoch
    per_epoch = _natural_length(samples, batch=batch, remainder=remainder)
    if asked is not None:
        _require_length(asked, longest=floor(per_epoch), samples=samples, batch=batch, remainder=remainder)
        per_epoch = Fraction(asked)
    full = floor(num_epochs * per_epoch)
    if min(full, max_updates or full) > MOST_UPDATES:
        raise BadInputError(
            f"--num-epochs {num_epochs} makes {full} weight updates, more than the {MOST_UPDATES} of "
            f"which a run keeps records; --num-epochs {max(1, floor(MOST_UPDATES / per_epoch))} works."
        )
    if full < 1:
        raise BadInputError(_run_too_short(samples, batch=batch, num_epochs=num_epochs))
    weight_updates = floor(per_epoch)
    left_out = 0 if remainder == "carry" else max(0, samples - weight_updates * batch.global_batch)
    warnings = [
        *_left_out_warnings(samples, batch=batch, left_out=left_out, asked=asked),
        *_tail_warnings(samples, batch=batch, remainder=remainder, num_epochs=num_epochs, asked=asked),
        *_length_warnings(max_updates, full=full, per_epoch=per_epoch, num_epochs=num_epochs),
    ]
    return EpochPlan(
        samples=samples,
        updates_per_epoch=per_epoch,
        weight_updates=weight_updates,
        micro_batches=weight_updates * batch.micro_batches_per_update,
        samples_unused=left_out,
        num_epochs=num_epochs,
        total_updates=full if max_updates is None else min(full, max_updates),
        remainder=remainder,
        warnings=tuple(warnings),
    )


def _natural_length(samples: int, *, batch: BatchArithmetic, remainder: Remainder) -> Fraction:
    exact = Fraction(samples, batch.global_batch)
    if samples < 1:
        raise BadInputError("There are no training samples; --dataset-size 1 or more is needed.")
    if remainder == "carry":
        return exact
    if remainder == "pad":
        return Fraction(ceil(exact))
    if exact < 1:
        raise BadInputError(_too_few_samples(samples, batch=batch))
    return Fraction(floor(exact))


def _require_length(
    asked: int, *, longest: int, samples: int, batch: BatchArithmetic, remainder: Remainder
) -> None:
    if asked < 1:
        raise BadInputError(
            f"--weight-updates-per-epoch {asked} is no length of an epoch; "
            "use 1 or more, or -1 for what the data gives."
        )
    if asked > longest and remainder != "carry":
        raise BadInputError(
            f"--weight-updates-per-epoch {asked} needs {asked * batch.global_batch} samples, but there are "
            f"{samples}; use --weight-updates-per-epoch {longest} or less, or --remainder carry."
        )


def _too_few_samples(samples: int, *, batch: BatchArithmetic) -> str:
    per_round = batch.micro * batch.replicas
    said = f"The global batch of {batch.global_batch} is larger than the {samples} training samples; use "
    if per_round <= samples:
        accumulation = samples // per_round
        fits = (
            f"--global-batch-size {accumulation * per_round} (--gradient-accumulation-count {accumulation})"
        )
        return f"{said}{fits}, or --remainder pad."
    if batch.replicas <= samples:
        micro = samples // batch.replicas
        fits = f"--micro-batch-size {micro} --global-batch-size {micro * batch.replicas}"
        return f"{said}{fits}, or --remainder pad."
    return f"{said}--remainder pad (--global-batch-size would have to be {samples} or less)."


def _run_too_short(samples: int, *, batch: BatchArithmetic, num_epochs: int) -> str:
    needed = ceil(Fraction(batch.global_batch, samples))
    return (
        f"--num-epochs {num_epochs} of {samples} samples fill no global batch of {batch.global_batch}; "
        f"use --num-epochs {needed}, at most --global-batch-size {samples * num_epochs}, or --remainder pad."
    )


def _left_out_warnings(
    samples: int, *, batch: BatchArithmetic, left_out: int, asked: int | None
) -> tuple[str, ...]:
    if left_out == 0 or asked is not None:
        return ()
    return (
        f"{left_out} of {samples} training samples fill no global batch of {batch.global_batch} and are left "
        "out of every epoch; --remainder pad or --remainder carry uses them all.",
    )


def _tail_warnings(
    samples: int, *, batch: BatchArithmetic, remainder: Remainder, num_epochs: int, asked: int | None
) -> tuple[str, ...]:
    left_over = num_epochs * samples % batch.global_batch
    if remainder != "carry" or asked is not None or left_over == 0:
        return ()
    return (
        f"The last {left_over} samples of {num_epochs} epochs fill no global batch of {batch.global_batch} "
        "and are left out; --remainder pad uses them all.",
    )


def _length_warnings(
    max_updates: int | None, *, full: int, per_epoch: Fraction, num_epochs: int
) -> tuple[str, ...]:
    if max_updates is None or max_updates <= full:
        return ()
    return (
        f"--max-updates {max_updates} is more than the {full} updates of --num-epochs {num_epochs}; "
        f"--num-epochs {ceil(max_updates / per_epoch)} would reach it.",
    )
