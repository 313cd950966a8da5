"""The learning rate as a function of the update counter, on the host (numpy) and on the device (torch)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.schema import Recipe

if TYPE_CHECKING:
    import torch

# A numpy or a torch array: the functions that curves use have the same names in both.
Array: TypeAlias = Any
Curve: TypeAlias = Callable[[ModuleType, Array], Array]
DEFAULT_PEAK = 0.1
DEFAULT_END_RATIO = 0.0001
DEFAULT_POWER = 1.0
DEFAULT_DECAY_RATE = 0.9
_TIMES_GLOBAL_BATCH = frozenset({"const", "cosine", "polynomial"})


# A curve takes the array module (numpy or torch) and the update counters as a float array, and returns the
# rates in the same shape. No curve reads a value back to the host: that would synchronise the device.


def constant(rate: float) -> Curve:
    """The same rate at every update."""
    return lambda xp, update: xp.full_like(update, rate)


def cosine(peak: float, *, decay_updates: float) -> Curve:
    """Half a cosine from `peak` to zero over `decay_updates`, zero afterwards."""

    def curve(xp: ModuleType, update: Array) -> Array:
        share = xp.clip(update, None, decay_updates) / decay_updates
        return peak * 0.5 * (1 + xp.cos(math.pi * share))

    return curve


def stepped(values: Sequence[float], *, boundaries: Sequence[int]) -> Curve:
    """`values[i]` up to and including update `boundaries[i]`, the last value after the last boundary."""

    def curve(xp: ModuleType, update: Array) -> Array:
        rate = xp.full_like(update, values[-1])
        for value, boundary in reversed(list(zip(values[:-1], boundaries, strict=True))):
            rate = xp.where(update <= boundary, value, rate)
        return rate

    return curve


def polynomial(peak: float, *, end: float, decay_updates: float, power: float) -> Curve:
    """From `peak` to `end` over `decay_updates`: (1 - share done) to the given power."""

    def curve(xp: ModuleType, update: Array) -> Array:
        left = 1 - xp.clip(update, None, decay_updates) / decay_updates
        return (peak - end) * left**power + end

    return curve


def exponential(peak: float, *, decay_rate: float, decay_updates: float) -> Curve:
    """`peak` x `decay_rate` ^ (update / `decay_updates`), without steps or end."""
    return lambda _xp, update: peak * decay_rate ** (update / decay_updates)


def scaled(curve: Curve, *, factor: float) -> Curve:
    """The curve times a factor."""
    return lambda xp, update: factor * curve(xp, update)


def warm_up_shift(curve: Curve, *, updates: int) -> Curve:
    """Linear warm-up to the first rate of the curve, then the whole curve, shifted by `updates`."""

    def warmed(xp: ModuleType, update: Array) -> Array:
        rising = curve(xp, xp.full_like(update, 0.0)) * (update + 1) / (updates + 1)
        return xp.where(update < updates, rising, curve(xp, xp.clip(update - updates, 0.0, None)))

    return warmed


def warm_up_mask(curve: Curve, *, updates: int) -> Curve:
    """Linear warm-up multiplied with the first `updates` of the curve, which is not shifted."""

    def warmed(xp: ModuleType, update: Array) -> Array:
        rate = curve(xp, update)
        return xp.where(update < updates, rate * (update + 1) / (updates + 1), rate)

    return warmed


def staircase(curve: Curve, *, updates_per_epoch: Fraction) -> Curve:
    """The value of the curve at the start of each epoch, held for the whole epoch."""
    numerator, denominator = updates_per_epoch.numerator, updates_per_epoch.denominator

    def held(xp: ModuleType, update: Array) -> Array:
        # Multiply first, so that the epoch is exact if it is not a whole number of updates.
        epoch = xp.floor(update * denominator / numerator)
        return curve(xp, epoch * numerator / denominator)

    return held


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRate:
    """The rate at any update; `peak_origin` says which setting determined the peak."""

    curve: Curve
    peak: float
    peak_origin: str

    def at(self, update: float) -> float:
        """The rate of one update, counted from 0."""
        return float(self.curve(np, np.float64(update)))

    def over(self, updates: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rates of many updates at once."""
        return np.asarray(self.curve(np, np.asarray(updates, dtype=np.float64)), dtype=np.float64)

    def on_device(self, update: "torch.Tensor") -> "torch.Tensor":
        """The rates of a tensor of update counters, computed on its device without synchronising."""
        import torch

        from drivetrain.devices.device import Device

        wide_dtype = Device(torch_device=update.device, reason="device of the update counter").wide_dtype
        rates: torch.Tensor = self.curve(torch, update.to(wide_dtype))
        return rates


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lengths:
    """Lengths of the training in updates, to convert the epochs of a recipe."""

    updates_per_epoch: Fraction
    total_updates: int
    shifted_updates: int

    @property
    def updates_to_decay(self) -> int:
        """The updates of the training after a warm-up that shifts the schedule."""
        return max(1, self.total_updates - self.shifted_updates)

    def whole_updates(self, epochs: float) -> int:
        return int(epochs * self.updates_per_epoch)


def build_learning_rate(
    recipe: Recipe, *, global_batch: int, updates_per_epoch: Fraction, total_updates: int
) -> LearningRate:
    """Builds the learning-rate schedule of a recipe, with warm-up and staircase."""
    lengths = _Lengths(
        updates_per_epoch=updates_per_epoch,
        total_updates=total_updates,
        shifted_updates=_shifted_updates(recipe, updates_per_epoch),
    )
    if recipe.lr_schedule == "stepped":
        curve, peak, origin = _stepped(recipe, lengths)
    else:
        peak, origin = _peak(recipe, global_batch=global_batch)
        curve = _smooth_curve(recipe, peak=peak, lengths=lengths)
    curve = _warmed_up(curve, recipe, lengths)
    if recipe.lr_staircase:
        curve = staircase(curve, updates_per_epoch=updates_per_epoch)
    return LearningRate(curve=curve, peak=peak, peak_origin=origin)


def _shifted_updates(recipe: Recipe, updates_per_epoch: Fraction) -> int:
    warm_up = recipe.lr_warmup_params
    if warm_up is None or warm_up.warmup_mode != "shift":
        return 0
    return int(warm_up.warmup_epochs * updates_per_epoch)


def _peak(recipe: Recipe, *, global_batch: int) -> tuple[float, str]:
    per_sample = recipe.lr_schedule_params.initial_learning_rate
    if recipe.learning_rate is not None:
        return recipe.learning_rate, f"--learning-rate {recipe.learning_rate:.12g}"
    if per_sample is None:
        return DEFAULT_PEAK, f"default {DEFAULT_PEAK:g}"
    if recipe.lr_schedule not in _TIMES_GLOBAL_BATCH:
        return per_sample, f"initial_learning_rate {per_sample:.12g}"
    origin = f"initial_learning_rate {per_sample:.12g} per sample x global batch {global_batch}"
    return per_sample * global_batch, origin


def _smooth_curve(recipe: Recipe, *, peak: float, lengths: _Lengths) -> Curve:
    params = recipe.lr_schedule_params
    if recipe.lr_schedule == "const":
        return constant(peak)
    if recipe.lr_schedule == "cosine":
        return cosine(peak, decay_updates=_cosine_updates(params.epochs_to_total_decay, lengths))
    if recipe.lr_schedule == "polynomial":
        return polynomial(
            peak,
            end=peak * _given(params.end_learning_rate_ratio, DEFAULT_END_RATIO),
            decay_updates=_polynomial_updates(params.epochs_to_total_decay, lengths),
            power=_given(params.power, DEFAULT_POWER),
        )
    return exponential(
        peak,
        decay_rate=_given(params.decay_rate, DEFAULT_DECAY_RATE),
        decay_updates=_given(params.decay_updates, float(lengths.updates_to_decay)),
    )


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def _cosine_updates(epochs: float | None, lengths: _Lengths) -> int:
    if epochs is None:
        return lengths.updates_to_decay
    updates = lengths.whole_updates(epochs)
    if updates < 1:
        one_update = float(1 / lengths.updates_per_epoch)
        raise BadInputError(
            f"--lr-schedule-params epochs_to_total_decay {epochs:.12g} is shorter than one weight update; "
            f"use {one_update:g} or more."
        )
    return updates


def _polynomial_updates(epochs: float | None, lengths: _Lengths) -> float:
    return float(lengths.updates_to_decay if epochs is None else epochs * lengths.updates_per_epoch)


def _stepped(recipe: Recipe, lengths: _Lengths) -> tuple[Curve, float, str]:
    boundaries, values = recipe.lr_schedule_params.boundaries, recipe.lr_schedule_params.values
    if boundaries is None or values is None or len(values) != len(boundaries) + 1:
        raise BadInputError(
            "--lr-schedule stepped needs boundaries, and one value more than boundaries, in "
            '--lr-schedule-params, for example \'{"boundaries": [10, 20], "values": [0.1, 0.01, 0.001]}\'.'
        )
    curve = stepped(values, boundaries=[lengths.whole_updates(epoch) for epoch in boundaries])
    largest = max(values)
    if recipe.learning_rate is None:
        return curve, largest, f"largest stepped value {largest:.12g}"
    if largest <= 0:
        raise BadInputError("--learning-rate cannot scale stepped values of 0; use values above 0.")
    origin = f"--learning-rate {recipe.learning_rate:.12g}, to which the stepped values are scaled"
    return scaled(curve, factor=recipe.learning_rate / largest), recipe.learning_rate, origin


def _warmed_up(curve: Curve, recipe: Recipe, lengths: _Lengths) -> Curve:
    warm_up = recipe.lr_warmup_params
    if warm_up is None:
        return curve
    wrap = warm_up_shift if warm_up.warmup_mode == "shift" else warm_up_mask
    return wrap(curve, updates=lengths.whole_updates(warm_up.warmup_epochs))
