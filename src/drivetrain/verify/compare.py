"""How far two measurements lie apart, and how far they may: the tolerances of "the cut changes nothing".

Two tensors agree when ||g - g'|| <= tolerance * ||g|| + tolerance / 100 * ||all||. The error of a tensor is
its ||g - g'|| divided by (||g|| + ||all|| / 100), so that it is the error that the tolerance bounds.
"""

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from drivetrain.verify.measure import Arrays, DtypeName, Measurement

__all__ = ["TOLERANCES", "Difference", "Tolerance", "Worst", "compare", "longest_tensor", "worst_tensor"]

# Rounding past a kink moves a gradient by a part of it; what is further off is something else.
_LARGEST_JUMP = 0.1
_SHARE_OF_ALL = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The largest errors that are rounding: of tensors, and of the losses of the first updates.

    A loss above 1 counts in proportion. Later losses in float32 have drifted apart by rounding alone.
    """

    tensor: float
    loss: float
    judged_updates: int | None


TOLERANCES: dict[DtypeName, Tolerance] = {
    "float32": Tolerance(tensor=1e-5, loss=1e-5, judged_updates=10),
    "float64": Tolerance(tensor=1e-10, loss=1e-8, judged_updates=None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The tensor with the largest error."""

    name: str
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far a layout lies from what it should agree with; `weights` is not judged."""

    gradients: Worst
    statistics: Worst | None
    loss: float
    weights: float
    ranks_agree: bool
    tolerance: Tolerance

    @property
    def failures(self) -> list[str]:
        """What is more than rounding, in words."""
        most = self.tolerance.tensor
        found = []
        if not self.gradients.error <= most:
            found.append(_words(f"the gradient of {self.gradients.name}", self.gradients.error, most))
        if not self.loss <= self.tolerance.loss:
            found.append(_words("the loss", self.loss, self.tolerance.loss))
        if self.statistics is not None and not self.statistics.error <= most:
            found.append(_words(f"the statistics {self.statistics.name}", self.statistics.error, most))
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
    """Holds a layout's measurement against its reference's."""
    last = tolerance.judged_updates
    return Difference(
        gradients=worst_tensor(expected.gradients, found.gradients),
        statistics=worst_tensor(expected.statistics, found.statistics) if expected.statistics else None,
        loss=_loss_error(expected.losses[:last], found.losses[:last]),
        weights=_error_of_all(expected.weights, found.weights),
        ranks_agree=ranks_agree,
        tolerance=tolerance,
    )


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


def _error_of_all(expected: Arrays, found: Arrays) -> float:
    distance = _norm(*(found[name] - value for name, value in expected.items()))
    return _ratio(distance, _norm(*expected.values()))


def _words(what: str, error: float, most: float) -> str:
    return f"{what} differs by {error:.1e} (at most {most:.0e})"
