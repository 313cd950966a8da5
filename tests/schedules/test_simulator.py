"""The clock agrees with the closed forms of the schedules, and with messages counted by hand."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.schedules.actions import Edge, Schedule
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.checker import ScheduleError, live_micro_batches
from drivetrain.schedules.simulator import Simulation, simulate
from tests.schedules.tables import action, mappings, micro_batch_counts, names


def _equal_stages(name: str, stages: int, micro_batches: int) -> Simulation:
    schedule = build_schedule(name, micro_batches=micro_batches, device_of=range(stages))
    return simulate(schedule, forward_s=[1] * stages, backward_s=[2] * stages)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "one_forward_one_backward", "zero_bubble"), [(4, 8, 27, 11), (8, 32, 18, 7)]
)
def test_known_idle_shares(
    stages: int, micro_batches: int, one_forward_one_backward: int, zero_bubble: int
) -> None:
    assert round(100 * _equal_stages("1f1b", stages, micro_batches).bubble) == one_forward_one_backward
    assert round(100 * _equal_stages("zero-bubble", stages, micro_batches).bubble) == zero_bubble


@settings(max_examples=30)
@given(stages=st.integers(1, 8), micro_batches=micro_batch_counts)
def test_seconds_equal_the_closed_forms(stages: int, micro_batches: int) -> None:
    filled = 3 * (micro_batches + stages - 1)
    for name in ("1f1b", "grouped", "gpipe"):
        assert _equal_stages(name, stages, micro_batches).seconds_per_update == filled
    assert _equal_stages("sequential", stages, micro_batches).seconds_per_update == 3 * micro_batches * stages
    if micro_batches >= stages:
        zero_bubble = _equal_stages("zero-bubble", stages, micro_batches)
        assert zero_bubble.seconds_per_update == 3 * micro_batches + stages - 1


@settings(max_examples=30)
@given(name=names, micro_batches=micro_batch_counts, device_of=mappings(), data=st.data())
def test_devices_do_one_thing_at_a_time_and_all_of_it(
    name: str, micro_batches: int, device_of: tuple[int, ...], data: st.DataObject
) -> None:
    stages = len(device_of)
    seconds = st.lists(st.integers(1, 9), min_size=stages, max_size=stages)
    forward_s, backward_s = data.draw(seconds), data.draw(seconds)
    schedule = build_schedule(name, micro_batches=micro_batches, device_of=device_of)
    update = simulate(schedule, forward_s=forward_s, backward_s=backward_s, latency_s=0.25)
    for device in range(schedule.devices):
        spans = [span for span in update.timeline if span.device == device]
        assert tuple(span.action for span in spans) == schedule.table[device]
        assert all(first.end_s <= second.start_s for first, second in pairwise(spans))
        own = [stage for stage in range(stages) if device_of[stage] == device]
        assert update.busy_s[device] == micro_batches * sum(forward_s[s] + backward_s[s] for s in own)
    assert update.seconds_per_update == max(span.end_s for span in update.timeline)
    assert update.live == live_micro_batches(schedule)
    assert 0 <= update.bubble < 1


def test_messages_of_a_pair_follow_each_other() -> None:
    schedule = build_schedule("gpipe", micro_batches=2, device_of=(0, 1))
    update = simulate(
        schedule,
        edges=[Edge("wide", 0, 1), Edge("thin", 0, 1)],
        forward_s=[1, 1],
        backward_s=[2, 2],
        latency_s=0.5,
        bytes_of={"wide": 20, "thin": 10},
        bytes_per_s=10,
    )
    starts = {str(span.action): span.start_s for span in update.timeline}
    # Three seconds on the line for each micro-batch: 1 to 4 and 4 to 7; then back: 10.5 to 13.5 to 16.5.
    assert starts == {
        "F0@0": 0, "F1@0": 1, "F0@1": 4.5, "F1@1": 7.5, "B0@1": 8.5, "B1@1": 10.5, "B0@0": 14, "B1@0": 17,
    }  # fmt: skip
    assert update.seconds_per_update == 19


def test_nothing_is_sent_within_a_device() -> None:
    schedule = build_schedule("gpipe", micro_batches=2, device_of=(0, 0))
    update = simulate(schedule, forward_s=[1, 1], backward_s=[2, 2], latency_s=100)
    assert (update.seconds_per_update, update.bubble) == (12, 0)


def test_the_weight_share_divides_the_backward() -> None:
    schedule = build_schedule("zero-bubble", micro_batches=1, device_of=(0,))
    update = simulate(schedule, forward_s=[1], backward_s=[4], weight_share=[0.25])
    assert [span.end_s - span.start_s for span in update.timeline] == [1, 3, 1]


def test_tables_that_stop_and_lines_without_sizes_are_refused() -> None:
    rows = ((action("B0@0"), action("F0@0")),)
    stuck = Schedule(name="own", micro_batches=1, device_of=(0,), table=rows)
    with pytest.raises(ScheduleError, match="Device 0 waits forever at B0@0"):
        simulate(stuck, forward_s=[1], backward_s=[1])
    schedule = build_schedule("gpipe", micro_batches=1, device_of=(0, 1))
    with pytest.raises(ValueError, match="must be given together"):
        simulate(schedule, forward_s=[1, 1], backward_s=[1, 1], bytes_per_s=1)
