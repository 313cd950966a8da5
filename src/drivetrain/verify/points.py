"""Compares a layout with its reference at one point, or at several points if float32 needs them.

A point is a seed, with its own weights, sample order and random numbers. In float64 the first point decides.
In float32 two kinds of difference are not the layout's fault:

- Some computations round more than others on some processors. A layout beyond the fixed tolerance is still
  equal if it is about as close to the float64 result as one process is.
- A gradient jumps when rounding moves a value past a kink, such as 0 for a ReLU or a tie in a max-pool. If
  the first point is not equal, more points are tried until it is certain whether 5 of 8 are equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from drivetrain.verify.bits import Bits
from drivetrain.verify.compare import TOLERANCES, Difference, Worst, compare, own_rounding
from drivetrain.verify.cuts import Layout
from drivetrain.verify.measure import DtypeName
from drivetrain.verify.measurer import Measurer

__all__ = [
    "MOST_POINTS",
    "NEEDED_POINTS",
    "Point",
    "Requirement",
    "Row",
    "Verdict",
    "compare_at_points",
    "finite_or_none",
]

Verdict = Literal["identical", "equal", "different"]
Requirement = Literal["identical", "equal"]
"""The least that `--require` demands of every layout."""

# In float32, rounding can move a value past a kink and make a right layout differ at one point. If the first
# point differs, most of several points decide. In float64 rounding is far smaller, and one point decides.
MOST_POINTS: dict[DtypeName, int] = {"float32": 8, "float64": 1}
NEEDED_POINTS: dict[DtypeName, int] = {"float32": 5, "float64": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A layout's difference from one process and, if that is too large, of both from float64."""

    difference: Difference
    from_exact: Difference | None = None
    reference_from_exact: Difference | None = None

    @property
    def is_equal(self) -> bool:
        return self.difference.ok or (self.from_exact is not None and self.from_exact.ok)

    def to_json(self) -> dict[str, Any] | None:
        """The differences from the float64 result; None if it was not needed."""
        if self.from_exact is None or self.reference_from_exact is None:
            return None
        return {
            "layout": _errors(self.from_exact),
            "one_process": _errors(self.reference_from_exact),
            "equal": self.is_equal,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A layout in one dtype, with its difference from the reference at each point."""

    layout: Layout
    reference: Layout
    dtype: DtypeName
    points: tuple[Point, ...]

    @property
    def differences(self) -> list[Difference]:
        return [point.difference for point in self.points]

    @property
    def points_tried(self) -> int:
        return len(self.points)

    @property
    def points_equal(self) -> int:
        return sum(point.is_equal for point in self.points)

    @property
    def tolerance(self) -> float:
        """The largest gradient tolerance that was applied."""
        judged = [one for point in self.points for one in (point.difference, point.from_exact) if one]
        return max(one.tolerance.tensor for one in judged)

    @property
    def equal_point(self) -> int | None:
        """The first point at which the layout is equal."""
        return next((index for index, point in enumerate(self.points) if point.is_equal), None)

    @property
    def ok(self) -> bool:
        """Equal at the first point, or at most points with no difference that rounding cannot explain."""
        is_mostly_equal = self.points_equal >= NEEDED_POINTS[self.dtype]
        return self.points[0].is_equal or (
            is_mostly_equal and all(one.may_be_rounding for one in self.differences)
        )

    @property
    def is_identical(self) -> bool:
        """Whether the layout has the same bits as one process, and not only equal numbers."""
        return self.ok and all(one.is_identical for one in self.differences)

    @property
    def has_same_micro_batches(self) -> bool:
        """Whether the reference computes the same micro-batches; other sizes always give other bits."""
        return self.layout.micro == self.reference.micro

    @property
    def bits(self) -> Bits:
        """The compared bits of the first point that differs, or else of the first point."""
        return next(
            (one.bits for one in self.differences if not one.bits.are_same), self.points[0].difference.bits
        )

    @property
    def verdict(self) -> Verdict:
        """What the layout is, compared with one process."""
        if not self.ok:
            return "different"
        return "identical" if self.is_identical else "equal"

    @property
    def gradients(self) -> Worst:
        """The worst gradient of all points."""
        return max((one.gradients for one in self.differences), key=lambda worst: worst.error)

    @property
    def statistics(self) -> Worst | None:
        """The worst batch-norm statistics of all points, where there are any."""
        found = [one.statistics for one in self.differences if one.statistics is not None]
        return max(found, key=lambda worst: worst.error, default=None)

    @property
    def loss(self) -> float:
        """The worst loss of all points."""
        return max(one.loss for one in self.differences)

    @property
    def failures(self) -> list[str]:
        """A sentence for each error above the tolerance, at the worst point."""
        unequal = [point.difference for point in self.points if not point.is_equal]
        return (
            max(unequal, key=lambda one: (not one.ranks_agree, one.gradients.error)).failures
            if unequal
            else []
        )

    def to_json(self, *, has_batch_norm: bool) -> dict[str, Any]:
        """Plain values for `--json`: the worst of all points, and null for an error that is not finite."""
        statistics = self.statistics
        return {
            **self.layout.to_json(has_batch_norm=has_batch_norm),
            "dtype": self.dtype,
            "compared_with": self.reference.to_json(has_batch_norm=has_batch_norm),
            "points_tried": self.points_tried,
            "points_equal": self.points_equal,
            "max_relative_gradient_error": finite_or_none(self.gradients.error),
            "worst_gradient": self.gradients.name,
            "loss_error": finite_or_none(self.loss),
            "batch_norm_error": None if statistics is None else finite_or_none(statistics.error),
            "weight_error": finite_or_none(max(one.weights.error for one in self.differences)),
            "from_float64": [found for point in self.points if (found := point.to_json()) is not None],
            "bits": self.bits.to_json(),
            "verdict": self.verdict,
            "ok": self.ok,
            "failures": self.failures,
        }


def compare_at_points(measurer: Measurer, layout: Layout, *, reference: Layout, dtype: DtypeName) -> Row:
    """Measures and compares a layout at as many points as the verdict needs."""
    points: list[Point] = []
    while not _is_decided(points, dtype=dtype):
        points.append(_compare_at(measurer, layout, reference=reference, dtype=dtype, point=len(points)))
    return Row(layout=layout, reference=reference, dtype=dtype, points=tuple(points))


def _compare_at(
    measurer: Measurer, layout: Layout, *, reference: Layout, dtype: DtypeName, point: int
) -> Point:
    expected = measurer.alone(reference, dtype, point=point)
    found, ranks_agree = measurer.measured(layout, dtype, reference=reference, point=point)
    fixed = TOLERANCES[dtype]
    difference = compare(expected, found, tolerance=fixed, ranks_agree=ranks_agree)
    if difference.ok or dtype != "float32" or not difference.may_be_rounding:
        return Point(difference=difference)
    exact = measurer.exact(reference, point=point)
    if exact is None:
        return Point(difference=difference)
    own = compare(exact, expected, tolerance=fixed)
    from_exact = compare(exact, found, tolerance=own_rounding(own), ranks_agree=ranks_agree)
    return Point(difference=difference, from_exact=from_exact, reference_from_exact=own)


def _is_decided(points: Sequence[Point], *, dtype: DtypeName) -> bool:
    if not points:
        return False
    equal = sum(point.is_equal for point in points)
    spare = MOST_POINTS[dtype] - NEEDED_POINTS[dtype]
    return (
        points[0].is_equal
        or not points[-1].difference.may_be_rounding
        or equal >= NEEDED_POINTS[dtype]
        or len(points) - equal > spare
    )


def _errors(difference: Difference) -> dict[str, float | None]:
    statistics = difference.statistics
    return {
        "max_relative_gradient_error": finite_or_none(difference.gradients.error),
        "loss_error": finite_or_none(difference.loss),
        "batch_norm_error": None if statistics is None else finite_or_none(statistics.error),
        "weight_error": finite_or_none(difference.weights.error),
    }


def finite_or_none(error: float) -> float | None:
    """The number, or None for NaN and infinity, which JSON cannot represent."""
    return error if isfinite(error) else None
