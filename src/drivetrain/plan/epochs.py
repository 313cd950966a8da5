"""The number of weight updates in an epoch and in the whole training, and the samples they skip."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.layout import BatchArithmetic
from drivetrain.recipe.schema import Remainder

# `program/records.py` allocates the records of all updates on the device before training starts, at least
# three float64 values each: 480 MB at this limit.
MOST_UPDATES = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """The length of an epoch and of the training, in updates.

    `weight_updates` counts the whole updates of an epoch. With `--remainder carry` an epoch may end in the
    middle of an update; `updates_per_epoch` is the exact length, for example 937 1/2.
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
        """The updates of `num_epochs` epochs, before --max-updates shortens them."""
        return floor(self.num_epochs * self.updates_per_epoch)

    def epoch_of(self, update: int) -> int:
        """The number of epochs completed after `update` updates, which is the index of the current epoch."""
        return floor(update / self.updates_per_epoch)


def plan_epochs(
    *,
    samples: int,
    batch: BatchArithmetic,
    remainder: Remainder,
    weight_updates_per_epoch: int | None,
    num_epochs: int,
    max_updates: int | None,
    warns_of_skipped: bool = True,
) -> EpochPlan:
    """Plans the epochs of `samples` training samples; raises BadInputError if not even one update fits."""
    asked = None if weight_updates_per_epoch == -1 else weight_updates_per_epoch
    per_epoch = _natural_length(samples, batch=batch, remainder=remainder)
    if asked is not None:
        _require_length(asked, longest=floor(per_epoch), samples=samples, batch=batch, remainder=remainder)
        per_epoch = Fraction(asked)
    full = floor(num_epochs * per_epoch)
    if min(full, max_updates or full) > MOST_UPDATES:
        raise BadInputError(
            f"--num-epochs {num_epochs} gives {full} weight updates, but a run can record at most "
            f"{MOST_UPDATES}; --num-epochs {max(1, floor(MOST_UPDATES / per_epoch))} works."
        )
    if full < 1:
        raise BadInputError(_run_too_short(samples, batch=batch, num_epochs=num_epochs))
    weight_updates = floor(per_epoch)
    left_out = 0 if remainder == "carry" else max(0, samples - weight_updates * batch.global_batch)
    warnings = [
        *(
            _left_out_warnings(samples, batch=batch, left_out=left_out, asked=asked)
            if warns_of_skipped
            else ()
        ),
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
        raise BadInputError("There are no training samples; use --dataset-size 1 or more.")
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
            f"--weight-updates-per-epoch {asked} is not a valid length of an epoch; "
            "use 1 or more, or -1 for one pass over the training data."
        )
    if asked > longest and remainder != "carry":
        raise BadInputError(
            f"--weight-updates-per-epoch {asked} needs {asked * batch.global_batch} samples, but the "
            f"data set has {samples}; use --weight-updates-per-epoch {longest} or less, or --remainder carry."
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
    return f"{said}--remainder pad, or a --global-batch-size of at most {samples} on fewer replicas."


def _run_too_short(samples: int, *, batch: BatchArithmetic, num_epochs: int) -> str:
    needed = ceil(Fraction(batch.global_batch, samples))
    return (
        f"--num-epochs {num_epochs} of {samples} samples do not fill one global batch of "
        f"{batch.global_batch}; use --num-epochs {needed} or more, --global-batch-size "
        f"{samples * num_epochs} or less, or --remainder pad."
    )


def _left_out_warnings(
    samples: int, *, batch: BatchArithmetic, left_out: int, asked: int | None
) -> tuple[str, ...]:
    if left_out == 0 or asked is not None:
        return ()
    return (
        f"The last {left_out} of {samples} training samples do not fill a global batch of "
        f"{batch.global_batch} and are skipped in every epoch; --remainder pad or --remainder carry trains "
        "on all samples.",
    )


def _tail_warnings(
    samples: int, *, batch: BatchArithmetic, remainder: Remainder, num_epochs: int, asked: int | None
) -> tuple[str, ...]:
    left_over = num_epochs * samples % batch.global_batch
    if remainder != "carry" or asked is not None or left_over == 0:
        return ()
    return (
        f"The last {left_over} samples after {num_epochs} epochs do not fill a global batch of "
        f"{batch.global_batch} and are skipped; --remainder pad trains on all samples.",
    )


def _length_warnings(
    max_updates: int | None, *, full: int, per_epoch: Fraction, num_epochs: int
) -> tuple[str, ...]:
    if max_updates is None or max_updates <= full:
        return ()
    return (
        f"--max-updates {max_updates} is not reached: --num-epochs {num_epochs} ends after {full} updates; "
        f"--num-epochs {ceil(max_updates / per_epoch)} would reach it.",
    )
