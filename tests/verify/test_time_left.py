"""How long a verification still takes."""

import os

import pytest

from drivetrain.verify.cuts import Layout
from drivetrain.verify.time_left import TimeLeft

ALONE = Layout(micro=4, accumulation=2)
STAGES = Layout(micro=4, accumulation=2, stages=2, processes=1)
RECOMPUTED = Layout(micro=4, accumulation=2, stages=2, processes=1, recomputation=True)
RANKS = Layout(micro=4, replicas=2)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_layouts_of_one_kind_take_as_long_as_those_that_were_timed() -> None:
    left = TimeLeft([(ALONE, "float32"), (STAGES, "float32"), (RECOMPUTED, "float32")])
    left.add(ALONE, "float32", seconds=30.0)
    assert left.seconds == pytest.approx(30.0 + 40.0)
    left.add(STAGES, "float32", seconds=60.0)
    assert left.seconds == pytest.approx(45.0 * 4 / 3)
    left.add(RECOMPUTED, "float32", seconds=60.0)
    assert left.seconds == 0.0


def test_a_kind_that_was_never_timed_is_judged_by_the_others() -> None:
    left = TimeLeft([(ALONE, "float32"), (RANKS, "float32"), (ALONE, "float64"), (RANKS, "float64")])
    left.add(ALONE, "float32", seconds=10.0)
    assert left.seconds == pytest.approx(5.0 + 25.0 + 12.5)
    left.add(RANKS, "float32", seconds=9.0)
    left.add(ALONE, "float64", seconds=40.0)
    # In all kinds together: 10 + 9 + 40 / 2.5 seconds for 2.5 units of work.
    assert left.seconds == pytest.approx(35.0 / 2.5 * 2.5 / 2)


def test_measurements_that_nobody_planned_count_only_for_the_pace() -> None:
    left = TimeLeft([(ALONE, "float32"), (STAGES, "float32")])
    left.add(ALONE, "float32", seconds=10.0)
    left.add(STAGES, "float32", seconds=20.0, was_planned=False)
    assert left.seconds == pytest.approx(15.0)
