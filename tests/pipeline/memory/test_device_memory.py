"""What devices hold of an update, against sums done by hand."""

from dataclasses import replace

import pytest

from drivetrain.pipeline.memory.device_memory import (
    DeviceCourse,
    HeldBytes,
    StageNeeds,
    held_bytes,
    memory_courses,
)
from drivetrain.schedules.actions import Edge
from drivetrain.schedules.by_name import build_schedule

FIRST = StageNeeds(
    inputs={"images": 1},
    kept_outputs={},
    saved=100,
    forward=120,
    working=30,
    deferred=0,
    gradients=10,
    recomputes=False,
)
SECOND = replace(FIRST, inputs={"features": 10}, saved=1000, forward=1000, working=300, gradients=0)
EDGES = [Edge("features", 0, 1)]
BYTES_OF = {"images": 1, "features": 10}


def _held(
    name: str, *, device_of: tuple[int, ...], micro_batches: int, first: StageNeeds = FIRST
) -> tuple[HeldBytes, ...]:
    schedule = build_schedule(name, micro_batches=micro_batches, device_of=device_of)
    return held_bytes(schedule, edges=EDGES, needs=[first, SECOND], bytes_of=BYTES_OF)


def test_live_micro_batches_add_up() -> None:
    first, second = _held("gpipe", device_of=(0, 1), micro_batches=3)
    assert first == HeldBytes(3 * (1 + 100), 30)
    assert second == HeldBytes(3 * (10 + 1000), 300)


def test_1f1b_holds_less() -> None:
    first, second = _held("1f1b", device_of=(0, 1), micro_batches=3)
    assert first == HeldBytes(2 * (1 + 100), 30)
    assert second == HeldBytes(10 + 1000, 300)


def test_stages_of_one_device_add_up_and_hand_values_on() -> None:
    (both,) = _held("sequential", device_of=(0, 0), micro_batches=3)
    assert both == HeldBytes(1 + 100 + 10 + 1000, 300)


def test_a_value_that_both_keep_is_there_once() -> None:
    kept = replace(FIRST, kept_outputs={"features": 10})
    (both,) = _held("sequential", device_of=(0, 0), micro_batches=1, first=kept)
    assert both == HeldBytes(1 + 100 + 1000, 300)


@pytest.mark.parametrize(("gradients", "working"), [(5, 30), (40, 60)])
def test_recomputation_holds_inputs_and_repeats_one(gradients: int, working: int) -> None:
    again = replace(FIRST, recomputes=True, gradients=gradients)
    first, _ = _held("gpipe", device_of=(0, 1), micro_batches=3, first=again)
    # Where the gradients are large, they and the repeated forward pass are more than a backward pass.
    assert first == HeldBytes(3 * 1 + 100, working)


def test_a_split_backward_pass_keeps_what_the_weights_need() -> None:
    late = replace(FIRST, deferred=5000)
    first, _ = _held("zero-bubble", device_of=(0, 1), micro_batches=1, first=late)
    assert first == HeldBytes(5000, 0)


def test_the_course_says_what_is_held_during_and_after_each_pass() -> None:
    schedule = build_schedule("gpipe", micro_batches=2, device_of=(0, 1))
    first, _ = memory_courses(schedule, edges=EDGES, needs=[FIRST, SECOND], bytes_of=BYTES_OF)
    assert [str(each.action) for each in first] == ["F0@0", "F1@0", "B0@0", "B1@0"]
    assert [each.during for each in first] == [
        HeldBytes(1, 120),
        HeldBytes(101 + 1, 120),
        HeldBytes(202, 30),
        HeldBytes(101, 30),
    ]
    assert [each.after for each in first] == [101, 202, 101, 0]
    assert [each.most for each in first] == [121, 222, 232, 131]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zero-bubble", "sequential"])
@pytest.mark.parametrize("recomputes", [False, True])
def test_the_highest_of_a_course_is_the_peak(name: str, recomputes: bool) -> None:
    needs = [replace(FIRST, recomputes=recomputes, deferred=70), replace(SECOND, recomputes=recomputes)]
    schedule = build_schedule(name, micro_batches=4, device_of=(0, 1))
    held = held_bytes(schedule, edges=EDGES, needs=needs, bytes_of=BYTES_OF)
    courses = memory_courses(schedule, edges=EDGES, needs=needs, bytes_of=BYTES_OF)
    for moment, actions in zip(held, courses, strict=True):
        assert max(each.most for each in actions) == moment.total
        assert actions[-1].after == 0
        assert DeviceCourse(lasting=7, actions=actions, update=1).peak == 7 + moment.total
        assert DeviceCourse(lasting=7, actions=actions, update=10**6).peak == 7 + 10**6
