"""Compares two measurements and holds the tolerances within which two layouts count as equal.

Two tensors agree when ||g - g'|| <= tolerance * ||g|| + tolerance / 100 * ||all||, where `all` are all
tensors of the model together. The reported error of a tensor is ||g - g'|| / (||g|| + ||all|| / 100), so it
can be compared with the tolerance directly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from drivetrain.verify.bits import Bits, compare_bits
from drivetrain.verify.measure import Arrays, DtypeName, Measurement, Step

__all__ = [
    "TOLERANCES",
    "Difference",
    "Tolerance",
    "Worst",
    "compare",
    "longest_tensor",
    "own_rounding",
    "worst_tensor",
]

# When rounding moves a value past a kink, a gradient changes by a fraction of itself. A larger error cannot
# be explained that way and is a fault at once.
_LARGEST_JUMP = 0.1
# Keeps the error of a tensor meaningful when its own norm is almost 0: it is then measured against 1 % of the
# norm of all tensors instead of against nearly nothing.
_SHARE_OF_ALL = 0.01
# A layout may be this many times as far from the float64 result as one process is: the worst tensors of two
# computations that round independently are seldom further apart.
_OWN_ROUNDINGS = 4.0
# Upper limit of the widened tolerance. It stays below the 1e-3 by which the negative control changes a
# gradient, so that such a fault is still noticed.
_MOST_ROUNDING = 1e-4
# Much wider for weights: Adam divides a gradient by its own size, so a gradient that consists of rounding
# alone still makes a step of full length.
_MOST_ROUNDING_OF_WEIGHTS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The largest errors that count as rounding; the error of a loss above 1 is relative to that loss."""

    tensor: float
    loss: float
    weights: float


# 1e-5 is about a hundred times the rounding unit of float32. In float64 the comparison is five digits
# stricter, so that a real fault cannot be taken for rounding.
TOLERANCES: dict[DtypeName, Tolerance] = {
    "float32": Tolerance(tensor=1e-5, loss=1e-5, weights=1e-5),
    "float64": Tolerance(tensor=1e-10, loss=1e-8, weights=1e-8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The tensor with the largest error."""

    name: str
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The errors of a layout against its reference, each from the worst of the compared updates."""

    gradients: Worst
    statistics: Worst | None
    weights: Worst
    optimiser: Worst | None
    loss: float
    ranks_agree: bool
    tolerance: Tolerance
    bits: Bits
    unequal_count: str | None = None
    """The first buffer of whole numbers or truth values that is not exactly equal."""

    @property
    def failures(self) -> list[str]:
        """A sentence for each error above the tolerance."""
        judged = [
            (f"the gradient of {self.gradients.name}", self.gradients.error, self.tolerance.tensor),
            ("the loss", self.loss, self.tolerance.loss),
            (f"the updated {self.weights.name}", self.weights.error, self.tolerance.weights),
        ]
        if self.statistics is not None:
            name, error = self.statistics.name, self.statistics.error
            judged.append((f"the running statistics {name}", error, self.tolerance.tensor))
        if self.optimiser is not None:
            name, error = self.optimiser.name, self.optimiser.error
            judged.append((f"the optimizer state {name}", error, self.tolerance.weights))
        found = [_words(what, error, most) for what, error, most in judged if not error <= most]
        if self.unequal_count is not None:
            found.append(f"the buffer {self.unequal_count} differs")
        return found if self.ranks_agree else [*found, "the ranks ended with different weights or statistics"]

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def is_identical(self) -> bool:
        """Whether every compared loss and tensor has the same bits, on all ranks."""
        return self.ranks_agree and self.bits.are_same

    @property
    def may_be_rounding(self) -> bool:
        """Whether rounding could explain the errors, by moving a value past a kink such as 0 for a ReLU."""
        is_exact = self.ranks_agree and self.unequal_count is None
        return is_exact and self.gradients.error <= _LARGEST_JUMP


def compare(
    expected: Measurement, found: Measurement, *, tolerance: Tolerance, ranks_agree: bool = True
) -> Difference:
    """Compares a layout's measurement with its reference's."""
    pairs = list(zip(expected.steps, found.steps, strict=True))
    statistics = [worst_tensor(one.statistics, other.statistics) for one, other in pairs if one.statistics]
    optimiser = [worst_tensor(one.optimiser, other.optimiser) for one, other in pairs if one.optimiser]
    return Difference(
        gradients=_worst([worst_tensor(one.gradients, other.gradients) for one, other in pairs]),
        statistics=_worst(statistics) if statistics else None,
        weights=_worst([worst_tensor(one.weights, other.weights) for one, other in pairs]),
        optimiser=_worst(optimiser) if optimiser else None,
        loss=_loss_error(expected.losses, found.losses),
        ranks_agree=ranks_agree,
        tolerance=tolerance,
        bits=compare_bits(expected, found),
        unequal_count=next((name for one, other in pairs for name in _unequal(one, other)), None),
    )


def _unequal(expected: Step, found: Step) -> Iterator[str]:
    assert list(expected.counts) == list(found.counts), "the layouts have different buffers"
    return (name for name, value in expected.counts.items() if not np.array_equal(value, found.counts[name]))


def own_rounding(difference: Difference) -> Tolerance:
    """The tolerance of a layout against float64, given the float32 `difference` of one process from it."""
    statistics = 0.0 if difference.statistics is None else difference.statistics.error
    optimiser = 0.0 if difference.optimiser is None else difference.optimiser.error
    moved = max(difference.weights.error, optimiser)
    least = difference.tolerance
    return Tolerance(
        tensor=_widened(least.tensor, max(difference.gradients.error, statistics), most=_MOST_ROUNDING),
        loss=_widened(least.loss, difference.loss, most=_MOST_ROUNDING),
        weights=_widened(least.weights, moved, most=_MOST_ROUNDING_OF_WEIGHTS),
    )


def _widened(tolerance: float, rounding: float, *, most: float) -> float:
    return max(tolerance, min(_OWN_ROUNDINGS * rounding, most))


def _worst(tensors: Sequence[Worst]) -> Worst:
    return max(tensors, key=lambda worst: worst.error)


def worst_tensor(expected: Arrays, found: Arrays) -> Worst:
    """The tensor with the largest error, as defined above; for NaN or infinity the error is infinite."""
    assert list(expected) == list(found), "the layouts have different tensors"
    floor = _SHARE_OF_ALL * _norm(*expected.values())
    with np.errstate(invalid="ignore"):
        errors = {
            name: _ratio(_norm(found[name] - value), _norm(value) + floor) for name, value in expected.items()
        }
    name = max(errors, key=errors.__getitem__)
    return Worst(name=name, error=errors[name])


def longest_tensor(tensors: Arrays) -> str:
    """The name of the tensor with the largest norm."""
    return max(tensors, key=lambda name: _norm(tensors[name]))


def _norm(*arrays: NDArray[np.floating]) -> float:
    return float(np.sqrt(sum(np.square(array, dtype=np.float64).sum() for array in arrays)))


def _ratio(distance: float, length: float) -> float:
    if distance == 0 and isfinite(length):
        return 0.0
    ratio = distance / length if length else inf
    return ratio if isfinite(ratio) else inf


def _loss_error(expected: NDArray[np.float64], found: NDArray[np.float64]) -> float:
    error = float((np.abs(found - expected) / np.maximum(1.0, np.abs(expected))).max())
    return error if isfinite(error) else inf


def _words(what: str, error: float, most: float) -> str:
    return f"{what} differs by {error:.1e} (tolerance {most:.0e})"
