"""How many points decide, and what is said of them."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from drivetrain.verify.cuts import Layout
from drivetrain.verify.measure import DtypeName, Measurement, Step
from drivetrain.verify.measurer import Measurer
from drivetrain.verify.points import Row, compare_at_points

EQUAL, JUMP, WRONG, APART = 1.0, 1.002, 2.0, 0.0
ONES = np.ones(4)


class _Points:
    """Measures a gradient that is this many times as long as it should be, point by point."""

    def __init__(self, factors: Sequence[float], *, exact: float | None) -> None:
        self.factors, self.in_float64 = factors, exact

    def alone(self, _layout: Layout, _dtype: DtypeName, *, point: int) -> Measurement:
        return _measurement(EQUAL)

    def exact(self, _layout: Layout, *, point: int) -> Measurement | None:
        return None if self.in_float64 is None else _measurement(self.in_float64)

    def measured(
        self, _layout: Layout, _dtype: DtypeName, *, reference: Layout, point: int
    ) -> tuple[Measurement, bool]:
        factor = self.factors[point]
        return _measurement(factor or EQUAL), factor != APART


def _measurement(factor: float) -> Measurement:
    step = Step(
        gradients={"line.weight": np.full(4, factor)},
        statistics={},
        counts={},
        weights={"line.weight": ONES},
        optimiser={},
    )
    return Measurement(steps=(step,), losses=np.ones(1), draws_from_torch=False)


def _row(*factors: float, dtype: DtypeName = "float32", exact: float | None = None) -> Row:
    measurer = cast(Measurer, _Points(factors, exact=exact))
    return compare_at_points(measurer, Layout(replicas=2, micro=4), reference=Layout(micro=8), dtype=dtype)


@pytest.mark.parametrize(
    ("factor", "exact", "is_ok"),
    [
        (1 + 3e-5, 1 + 1.5e-5, True),
        (1 + 3e-5, 1 - 0.9e-5, False),
        (1 + 3e-5, EQUAL, False),
        (1 + 3e-5, None, False),
        (1.001, 1.0005, False),
    ],
    ids=["both round so", "further off", "one process is exact", "no float64", "a limit"],
)
def test_float32_is_judged_by_the_rounding_of_one_process(
    factor: float, exact: float | None, is_ok: bool
) -> None:
    row = _row(*[factor] * 8, exact=exact)
    assert row.ok is is_ok
    assert row.points_tried == (1 if is_ok else 4)
    looked = row.to_json(has_batch_norm=False)["from_float64"]
    assert [entry["equal"] for entry in looked] == ([] if exact is None else [is_ok] * row.points_tried)
    assert not _row(factor, dtype="float64", exact=exact).ok


@pytest.mark.parametrize(
    ("factors", "equal", "tried", "is_ok"),
    [
        ([EQUAL], 1, 1, True),
        ([JUMP, *[EQUAL] * 5], 5, 6, True),
        ([JUMP, EQUAL, JUMP, EQUAL, JUMP, EQUAL, EQUAL, EQUAL], 5, 8, True),
        ([JUMP, EQUAL, EQUAL, EQUAL, EQUAL, JUMP, JUMP, JUMP], 4, 8, False),
        ([JUMP] * 4, 0, 4, False),
        ([JUMP, EQUAL, WRONG], 1, 3, False),
        ([WRONG], 0, 1, False),
        ([JUMP, EQUAL, APART], 1, 3, False),
        ([APART], 0, 1, False),
    ],
)
def test_float32_is_equal_at_the_first_point_or_at_five_of_eight(
    factors: list[float], equal: int, tried: int, is_ok: bool
) -> None:
    row = _row(*factors)
    assert (row.points_equal, row.points_tried, row.ok) == (equal, tried, is_ok)


@pytest.mark.parametrize(("factor", "is_ok"), [(EQUAL, True), (JUMP, False), (1 + 1e-8, False)])
def test_float64_has_one_point_to_be_equal_at(factor: float, is_ok: bool) -> None:
    row = _row(factor, dtype="float64")
    assert (row.points_tried, row.ok) == (1, is_ok)


def test_what_is_shown_is_the_worst_of_all_points() -> None:
    row = _row(1.001, EQUAL, 1.003, *[EQUAL] * 4)
    assert row.ok
    assert row.equal_point == 1
    found: dict[str, Any] = row.to_json(has_batch_norm=False)
    assert (found["points_equal"], found["points_tried"], found["ok"]) == (5, 7, True)
    assert found["max_relative_gradient_error"] == pytest.approx(0.003 / 1.01)
    assert found["weight_error"] == 0
    assert found["batch_norm_error"] is None
    assert len(found["failures"]) == 1
