"""Times of stages in proportion to their FLOPs, and the same scaled to seconds."""

import pytest

from drivetrain.schedules.pass_times import times_by_flops


def test_the_unit_is_a_forward_pass_through_all_stages() -> None:
    times = times_by_flops([30, 10], recomputes=[False, True])
    assert (times.forward, times.backward) == ((0.75, 0.25), (1.5, 0.75))
    assert (times.unit, times.update) == ("forward passes", 0.0)


def test_stages_without_flops_still_take_time() -> None:
    assert times_by_flops([0, 0], recomputes=[False, False]).forward == (0.5, 0.5)


def test_scaled_times_add_up_to_the_seconds() -> None:
    times = times_by_flops([30, 10], recomputes=[False, True]).in_seconds(6.5)
    assert sum(times.forward) + sum(times.backward) == pytest.approx(6.5)
    assert times.forward[0] == pytest.approx(1.5)
    assert times.unit == "s"
