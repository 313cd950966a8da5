"""A layout held against its reference at one point, or at several where float32 needs them.

A point is a seed: weights, order and chance of their own. In float64 the first point is equal, or the layout
is different. In float32 a gradient jumps where rounding moves a value past a kink, such as 0 for a ReLU or
the neighbour of a maximum, which no layout can help. So where the first point is not equal more are looked
at, until it is clear whether 5 of 8 are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from drivetrain.verify.compare import TOLERANCES, Difference, Worst, compare
from drivetrain.verify.cuts import Layout
from drivetrain.verify.measure import DtypeName
from drivetrain.verify.measurer import Measurer

__all__ = ["MOST_POINTS", "NEEDED_POINTS", "Row", "compare_at_points", "finite_or_none"]

MOST_POINTS: dict[DtypeName, int] = {"float32": 8, "float64": 1}
NEEDED_POINTS: dict[DtypeName, int] = {"float32": 5, "float64": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A layout in one type, and how far it lies from what it should agree with at each point tried."""

    layout: Layout
    reference: Layout
    dtype: DtypeName
    differences: tuple[Difference, ...]

    @property
    def points_tried(self) -> int:
        return len(self.differences)

    @property
    def points_equal(self) -> int:
        return sum(difference.ok for difference in self.differences)

    @property
    def equal_point(self) -> int | None:
        """The first point at which the layout is equal."""
        return next((point for point, found in enumerate(self.differences) if found.ok), None)

    @property
    def ok(self) -> bool:
        """Equal at the first point; or at most of them, and nowhere further off than rounding explains."""
        is_mostly_equal = self.points_equal >= NEEDED_POINTS[self.dtype]
        return self.differences[0].ok or (
            is_mostly_equal and all(one.may_be_rounding for one in self.differences)
        )

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
        """What is beyond the tolerance at the worst point, in words."""
        unequal = [one for one in self.differences if not one.ok]
        return (
            max(unequal, key=lambda one: (not one.ranks_agree, one.gradients.error)).failures
            if unequal
            else []
        )

    def to_json(self, *, has_batch_norm: bool) -> dict[str, Any]:
        """Plain values, the worst of all points; an error that is not finite is null."""
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
            "weight_error": finite_or_none(max(one.weights for one in self.differences)),
            "ok": self.ok,
            "failures": self.failures,
        }


def compare_at_points(measurer: Measurer, layout: Layout, *, reference: Layout, dtype: DtypeName) -> Row:
    """Measures and compares a layout at as many points as its verdict needs."""
    differences: list[Difference] = []
    while not _is_decided(differences, dtype=dtype):
        point = len(differences)
        expected = measurer.alone(reference, dtype, point=point)
        found, ranks_agree = measurer.measured(layout, dtype, point=point)
        differences.append(compare(expected, found, tolerance=TOLERANCES[dtype], ranks_agree=ranks_agree))
    return Row(layout=layout, reference=reference, dtype=dtype, differences=tuple(differences))


def _is_decided(differences: Sequence[Difference], *, dtype: DtypeName) -> bool:
    if not differences:
        return False
    equal = sum(one.ok for one in differences)
    spare = MOST_POINTS[dtype] - NEEDED_POINTS[dtype]
    return (
        differences[0].ok
        or not differences[-1].may_be_rounding
        or equal >= NEEDED_POINTS[dtype]
        or len(differences) - equal > spare
    )


def finite_or_none(error: float) -> float | None:
    """The number as JSON knows it."""
    return error if isfinite(error) else None
