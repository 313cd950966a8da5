"""Learning-rate curves: one formula each, for numpy on the host and torch on the device.

A curve takes the array module (numpy or torch) and the update counter as a float array of it, and gives
the rate in the same shape. Nothing here reads a value back, so a curve can be captured on a device.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from types import ModuleType
from typing import Any, TypeAlias

# A numpy or a torch array: what the curves do is spelt the same in both.
Array: TypeAlias = Any
Curve: TypeAlias = Callable[[ModuleType, Array], Array]


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
    """From `peak` down to `end` over `decay_updates`, along a power of what is left."""

    def curve(xp: ModuleType, update: Array) -> Array:
        left = 1 - xp.clip(update, None, decay_updates) / decay_updates
        return (peak - end) * left**power + end

    return curve


def exponential(peak: float, *, decay_rate: float, decay_updates: float) -> Curve:
    """`peak`, times `decay_rate` for every `decay_updates`, without steps and without an end."""
    return lambda _xp, update: peak * decay_rate ** (update / decay_updates)


def scaled(curve: Curve, *, factor: float) -> Curve:
    """The curve times a factor."""
    return lambda xp, update: factor * curve(xp, update)


def warm_up_shift(curve: Curve, *, updates: int) -> Curve:
    """A linear rise to the curve's first rate, then the whole curve, `updates` later."""

    def warmed(xp: ModuleType, update: Array) -> Array:
        rising = curve(xp, xp.full_like(update, 0.0)) * (update + 1) / (updates + 1)
        return xp.where(update < updates, rising, curve(xp, xp.clip(update - updates, 0.0, None)))

    return warmed


def warm_up_mask(curve: Curve, *, updates: int) -> Curve:
    """A linear rise laid over the curve's first `updates`."""

    def warmed(xp: ModuleType, update: Array) -> Array:
        rate = curve(xp, update)
        return xp.where(update < updates, rate * (update + 1) / (updates + 1), rate)

    return warmed


def staircase(curve: Curve, *, updates_per_epoch: Fraction) -> Curve:
    """The curve as it is at the start of each epoch, held over the epoch."""
    numerator, denominator = updates_per_epoch.numerator, updates_per_epoch.denominator

    def held(xp: ModuleType, update: Array) -> Array:
        # Multiplying first keeps the epoch's number exact where an epoch is no whole number of updates.
        epoch = xp.floor(update * denominator / numerator)
        return curve(xp, epoch * numerator / denominator)

    return held
