"""Every generator gives a table that all devices can carry out, with the closed forms where there are any."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.core.errors import BadInputError
from drivetrain.schedules.actions import Kind
from drivetrain.schedules.by_name import SCHEDULE_NAMES, build_schedule
from drivetrain.schedules.checker import check_schedule, live_micro_batches
from drivetrain.schedules.simulator import simulate
from tests.schedules.tables import mappings, micro_batch_counts, names, row, skips


@given(name=names, micro_batches=micro_batch_counts, device_of=mappings(), data=st.data())
def test_every_table_passes_the_checker(
    name: str, micro_batches: int, device_of: tuple[int, ...], data: st.DataObject
) -> None:
    schedule = build_schedule(name, micro_batches=micro_batches, device_of=device_of)
    check_schedule(schedule)
    check_schedule(schedule, edges=data.draw(skips(len(device_of))))
    assert schedule == build_schedule(name, micro_batches=micro_batches, device_of=list(device_of))


@settings(max_examples=40)
@given(micro_batches=micro_batch_counts, data=st.data(), stages=st.integers(1, 8))
def test_live_micro_batches_equal_the_closed_forms(
    micro_batches: int, data: st.DataObject, stages: int
) -> None:
    device_of = data.draw(st.permutations(range(stages)))
    expected = {
        "sequential": [1] * stages,
        "grouped": [2 * (stages - stage) - 1 for stage in range(stages)],
        "1f1b": [stages - stage for stage in range(stages)],
        "gpipe": [micro_batches] * stages,
        "zero-bubble": [stages] * stages,
    }
    for name, counts in expected.items():
        schedule = build_schedule(name, micro_batches=micro_batches, device_of=device_of)
        assert live_micro_batches(schedule) == tuple(min(count, micro_batches) for count in counts)


@given(name=names, micro_batches=micro_batch_counts, device_of=mappings())
def test_no_table_keeps_more_alive_than_its_schedule_says(
    name: str, micro_batches: int, device_of: tuple[int, ...]
) -> None:
    schedule = build_schedule(name, micro_batches=micro_batches, device_of=device_of)
    stages = len(device_of)
    most = {"sequential": 1, "gpipe": micro_batches, "zero-bubble": stages}.get(name, 2 * stages - 1)
    assert max(live_micro_batches(schedule)) <= most


def test_rows_of_three_stages() -> None:
    rows = {
        name: [row(build_schedule(name, micro_batches=4, device_of=range(3)), device) for device in range(3)]
        for name in SCHEDULE_NAMES
    }
    assert rows == {
        "sequential": ["F0 B0 F1 B1 F2 B2 F3 B3"] * 3,
        "grouped": ["F0 F1 F2 F3 B0 B1 B2 B3", "F0 F1 F2 B0 F3 B1 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"],
        "1f1b": ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"],
        "gpipe": ["F0 F1 F2 F3 B0 B1 B2 B3"] * 3,
        "zero-bubble": [
            "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3",
            "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",
            "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3",
        ],
    }


def test_neighbouring_stages_of_one_device_go_together() -> None:
    schedule = build_schedule("1f1b", micro_batches=2, device_of=(0, 0, 1, 1))
    assert [str(action) for action in schedule.table[1]] == [
        "F0@2", "F0@3", "B0@3", "B0@2", "F1@2", "F1@3", "B1@3", "B1@2",
    ]  # fmt: skip
    assert live_micro_batches(schedule) == (2, 2, 1, 1)
    one_device = build_schedule("zero-bubble", micro_batches=3, device_of=(0, 0, 0, 0))
    assert live_micro_batches(one_device) == (1, 1, 1, 1)


@pytest.mark.parametrize(("devices", "loops"), [(2, 2), (3, 2), (4, 2), (2, 3), (4, 3)])
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_looped_mappings_wait_only_for_the_first_and_the_last_micro_batch(
    devices: int, loops: int, groups: int
) -> None:
    micro_batches = devices * groups
    for around in (tuple(range(devices)), tuple(range(devices))[::-1]):
        schedule = build_schedule("1f1b", micro_batches=micro_batches, device_of=around * loops)
        stages = devices * loops
        update = simulate(schedule, forward_s=[1] * stages, backward_s=[2] * stages)
        assert update.seconds_per_update == 3 * (micro_batches * loops + devices - 1)


@settings(max_examples=30)
@given(micro_batches=micro_batch_counts, device_of=mappings())
def test_1f1b_never_takes_longer_than_sequential(micro_batches: int, device_of: tuple[int, ...]) -> None:
    seconds = [
        simulate(
            build_schedule(name, micro_batches=micro_batches, device_of=device_of),
            forward_s=[1] * len(device_of),
            backward_s=[2] * len(device_of),
        ).seconds_per_update
        for name in ("zero-bubble", "1f1b", "sequential")
    ]
    assert seconds[1] <= seconds[2]
    assert seconds[0] <= seconds[2]


def test_only_one_device_works_at_a_time_in_sequence() -> None:
    schedule = build_schedule("sequential", micro_batches=3, device_of=(0, 1, 1, 0))
    spans = simulate(schedule, forward_s=[1] * 4, backward_s=[2] * 4).timeline
    assert all(first.end_s <= second.start_s for first, second in pairwise(spans))


def test_only_zero_bubble_splits_the_backward() -> None:
    for name in SCHEDULE_NAMES:
        schedule = build_schedule(name, micro_batches=2, device_of=(0, 1))
        kinds = {action.kind for actions in schedule.table for action in actions}
        assert (Kind.WEIGHT in kinds) == (name == "zero-bubble")


@pytest.mark.parametrize("device_of", [(1, 2, 3), (0, 1, 2, 4), (), (0, -1)])
def test_mappings_with_holes_are_refused(device_of: tuple[int, ...]) -> None:
    with pytest.raises(BadInputError, match="--device-mapping"):
        build_schedule("gpipe", micro_batches=2, device_of=device_of)


def test_unknown_names_and_empty_updates_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"--pipeline-schedule.*Did you mean grouped\?"):
        build_schedule("groupd", micro_batches=2, device_of=(0, 1))
    with pytest.raises(BadInputError, match="--gradient-accumulation-count 0"):
        build_schedule("gpipe", micro_batches=0, device_of=(0, 1))
