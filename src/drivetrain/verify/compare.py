"""How far two measurements lie apart, and how far they may: the tolerances of "the cut changes nothing".

Two tensors agree when ||g - g'|| <= tolerance * ||g|| + tolerance / 100 * ||all||. The error of a tensor is
its ||g - g'|| divided by (||g|| + ||all|| / 100), so that it is the error that the tolerance bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from drivetrain.verify.measure import Arrays, DtypeName, Measurement

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

# Rounding past a kink moves a gradient by a part of it; what is further off is something else.
_LARGEST_JUMP = 0.1
_SHARE_OF_ALL = 0.01
# How many times as far from the float64 result as one process a layout may be: two computations that round
# independently are seldom further apart, as far as their worst tensors go.
_OWN_ROUNDINGS = 4.0
# A computation that rounds more than this would hide a gradient that is wrong by a thousandth.
_MOST_ROUNDING = 1e-4
# Adam makes a step of full length out of a gradient that is nothing but rounding.
_MOST_ROUNDING_OF_WEIGHTS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The largest errors that count as rounding; a loss above 1 counts in proportion."""

    tensor: float
    loss: float
    weights: float


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
    """How far a layout is from what it should agree with, in the worst of the updates compared."""

    gradients: Worst
    statistics: Worst | None
    weights: Worst
    optimiser: Worst | None
    loss: float
    ranks_agree: bool
    tolerance: Tolerance

    @property
    def failures(self) -> list[str]:
        """What is more than rounding, in words."""
        judged = [
            (f"the gradient of {self.gradients.name}", self.gradients.error, self.tolerance.tensor),
            ("the loss", self.loss, self.tolerance.loss),
            (f"the updated {self.weights.name}", self.weights.error, self.tolerance.weights),
        ]
        if self.statistics is not None:
            name, error = self.statistics.name, self.statistics.error
            judged.append((f"the statistics {name}", error, self.tolerance.tensor))
        if self.optimiser is not None:
            name, error = self.optimiser.name, self.optimiser.error
            judged.append((f"the optimizer state {name}", error, self.tolerance.weights))
        found = [_words(what, error, most) for what, error, most in judged if not error <= most]
        return found if self.ranks_agree else [*found, "the ranks ended with different weights or statistics"]

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def may_be_rounding(self) -> bool:
        """Whether a value that rounding moved past a kink, such as 0 for a ReLU, could explain it."""
        return self.ranks_agree and self.gradients.error <= _LARGEST_JUMP


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
    )


def own_rounding(difference: Difference) -> Tolerance:
    """How far a layout may be from the float64 result, given how far one process is from it in float32."""
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
    """The tensor that differs most, in the sense of the tolerance; what is not finite differs by infinity."""
    assert list(expected) == list(found), "the layouts have different tensors"
    floor = _SHARE_OF_ALL * _norm(*expected.values())
    with np.errstate(invalid="ignore"):
        errors = {
            name: _ratio(_norm(found[name] - value), _norm(value) + floor) for name, value in expected.items()
        }
    name = max(errors, key=errors.__getitem__)
    return Worst(name=name, error=errors[name])


def longest_tensor(tensors: Arrays) -> str:
    """The name of the tensor of the largest norm."""
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
    return f"{what} differs by {error:.1e} (at most {most:.0e})"
