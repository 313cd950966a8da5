"""The negative control: repeats one layout with a wrong gradient, which the comparison must notice."""

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
    """A layout whose last replica scaled `gradient` by 1.001, and the resulting error."""

    layout: Layout
    dtype: DtypeName
    gradient: str
    error: float
    tolerance: float

    @property
    def is_caught(self) -> bool:
        """Whether the error exceeds the tolerance that this layout was given for rounding."""
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
    """Runs the control on a layout and a seed that are equal without it; None if no layout is equal.

    A layout with several ranks, stages and replicas is preferred. The fault is made in the backward passes of
    the last replica: the comparison notices it only if that replica's gradients reach the weights, and only
    if it compares what the ranks really computed.
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
    """Sort key: layouts in which a gradient passes through ranks, stages and replicas come last."""
    return layout.ranks > 1, layout.stages > 1, layout.replicas > 1
