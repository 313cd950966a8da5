"""What devices hold of an update, against sums done by hand."""

from dataclasses import replace

import pytest

from drivetrain.pipeline.memory.device_memory import HeldBytes, StageNeeds, held_bytes
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
