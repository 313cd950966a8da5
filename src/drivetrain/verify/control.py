"""The negative control: a layout computed and compared as ever, with one wrong gradient to be noticed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drivetrain.verify.compare import longest_tensor, worst_tensor
from drivetrain.verify.cuts import Layout
from drivetrain.verify.measure import CONTROL_FACTOR, DtypeName
from drivetrain.verify.measurer import Measurer
from drivetrain.verify.points import Row, finite_or_none

__all__ = ["Control", "run_control"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A layout whose last replica made `gradient` a thousandth too long, and the error that this came to."""

    layout: Layout
    dtype: DtypeName
    gradient: str
    error: float
    tolerance: float

    @property
    def is_caught(self) -> bool:
        """Whether the error is more than what passed as rounding in that layout."""
        return self.error > self.tolerance

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "layout": self.layout.name,
            "gradient": self.gradient,
            "factor": CONTROL_FACTOR,
            "max_relative_gradient_error": finite_or_none(self.error),
            "caught": self.is_caught,
        }


def run_control(measurer: Measurer, rows: Sequence[Row]) -> Control | None:
    """Spoils a layout at a point where it is equal; None where none is equal.

    It is one with several ranks, stages and replicas, as far as there is one. The fault arises in the last
    replica's backward passes, so that it is noticed only if their part reaches the weights, and what is
    compared is what the ranks computed.
    """
    equal = [row for row in rows if row.equal_point is not None]
    if not equal:
        return None
    row = max(equal, key=lambda one: _reach(one.layout))
    assert row.equal_point is not None
    expected = measurer.alone(row.reference, row.dtype, point=row.equal_point).steps[0].gradients
    longest = longest_tensor(expected)
    found = measurer.spoilt(row.layout, row.dtype, point=row.equal_point, gradient=longest)
    return Control(
        layout=row.layout,
        dtype=row.dtype,
        gradient=longest,
        error=worst_tensor(expected, found.steps[0].gradients).error,
        tolerance=row.tolerance,
    )


def _reach(layout: Layout) -> tuple[bool, bool, bool]:
    """How much of the machinery a gradient passes through in a layout."""
    return layout.ranks > 1, layout.stages > 1, layout.replicas > 1
