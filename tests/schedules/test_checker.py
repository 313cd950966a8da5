"""The checker accepts good tables (see the generators' tests) and names what is wrong with others."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drivetrain.schedules.actions import Action, Edge, Kind, Schedule, chain
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.checker import ScheduleError, check_schedule, live_micro_batches
from drivetrain.schedules.traffic import messages
from tests.schedules.tables import action, altered, mappings, names


@st.composite
def tables(draw: st.DrawFn, kinds: tuple[Kind, ...] = tuple(Kind)) -> tuple[Schedule, int, int]:
    """A good table on two or more devices, a device and the index of an action of one of these kinds."""
    name = "zero-bubble" if kinds == (Kind.WEIGHT,) else draw(names)
    device_of = (0, 1, *draw(mappings()))
    schedule = build_schedule(name, micro_batches=draw(st.integers(1, 6)), device_of=device_of)
    device = draw(st.integers(0, schedule.devices - 1))
    places = [index for index, item in enumerate(schedule.table[device]) if item.kind in kinds]
    return schedule, device, draw(st.sampled_from(places))


@settings(max_examples=40)
@given(tables())
def test_a_missing_action_is_found(table: tuple[Schedule, int, int]) -> None:
    schedule, device, index = table
    with pytest.raises(ScheduleError, match=rf"Device {device} never lists {schedule.table[device][index]}"):
        check_schedule(altered(schedule, device, lambda row: row.pop(index)))


@settings(max_examples=40)
@given(tables())
def test_an_action_listed_twice_is_found(table: tuple[Schedule, int, int]) -> None:
    schedule, device, index = table
    again = schedule.table[device][index]
    with pytest.raises(ScheduleError, match=rf"Device {device} lists {again} twice"):
        check_schedule(altered(schedule, device, lambda row: row.append(again)))


@settings(max_examples=40)
@given(tables())
def test_an_action_on_the_wrong_device_is_found(table: tuple[Schedule, int, int]) -> None:
    schedule, device, index = table
    other = (device + 1) % schedule.devices
    moved = schedule.table[device][index]
    without = altered(schedule, device, lambda row: row.pop(index))
    with pytest.raises(
        ScheduleError, match=rf"Device {other} lists {moved}, whose stage is on device {device}"
    ):
        check_schedule(altered(without, other, lambda row: row.insert(0, moved)))


@settings(max_examples=40)
@given(tables(kinds=(Kind.FORWARD,)))
def test_a_forward_after_its_backward_is_found(table: tuple[Schedule, int, int]) -> None:
    schedule, device, index = table
    first = schedule.table[device][index]

    def swap(row: list[Action]) -> None:
        later = next(
            place
            for place, other in enumerate(row)
            if other.kind is not Kind.FORWARD
            and (other.stage, other.micro_batch) == (first.stage, first.micro_batch)
        )
        row[index], row[later] = row[later], row[index]

    with pytest.raises(ScheduleError, match="waits forever"):
        check_schedule(altered(schedule, device, swap))


@settings(max_examples=40)
@given(tables(kinds=(Kind.WEIGHT,)))
def test_a_weight_gradient_before_its_input_gradient_is_found(table: tuple[Schedule, int, int]) -> None:
    schedule, device, index = table
    weight = schedule.table[device][index]
    with pytest.raises(ScheduleError, match=f"Device {device} waits forever at {weight}"):
        check_schedule(altered(schedule, device, lambda row: row.insert(0, row.pop(index))))


def test_devices_that_wait_for_each_other_are_found() -> None:
    schedule = build_schedule("1f1b", micro_batches=2, device_of=(0, 1))
    late = altered(schedule, 0, lambda row: row.sort(key=lambda item: item.micro_batch))
    check_schedule(late)
    crossed = altered(late, 1, lambda row: row.sort(key=lambda item: item.kind is not Kind.FORWARD))
    with pytest.raises(ScheduleError, match=r"Device 0 waits forever at B0@0: I0@1 does not come before"):
        check_schedule(crossed)


def test_a_whole_backward_beside_its_parts_is_found() -> None:
    schedule = build_schedule("gpipe", micro_batches=1, device_of=(0, 1))
    with pytest.raises(ScheduleError, match="Device 1 lists B0@1 and also I0@1"):
        check_schedule(altered(schedule, 1, lambda row: row.append(action("I0@1"))))


@pytest.mark.parametrize("stranger", ["F0@2", "F1@1"])
def test_actions_outside_the_table_are_found(stranger: str) -> None:
    schedule = build_schedule("gpipe", micro_batches=1, device_of=(0, 1))
    with pytest.raises(ScheduleError, match=f"Device 1 lists {stranger}, but the"):
        check_schedule(altered(schedule, 1, lambda row: row.append(action(stranger))))


def test_exactly_the_given_edges_count() -> None:
    schedule = build_schedule("sequential", micro_batches=1, device_of=(0, 0, 0))
    swapped = altered(schedule, 0, lambda row: row.insert(0, row.pop(1)))
    with pytest.raises(ScheduleError, match="F0@1: F0@0 does not come before"):
        check_schedule(swapped)
    check_schedule(swapped, edges=[Edge("a", 0, 2), Edge("b", 1, 2)])
    with pytest.raises(ScheduleError, match="does not go from a stage to a later one"):
        check_schedule(schedule, edges=[Edge("a", 2, 1)])


@settings(max_examples=40)
@given(tables())
def test_receives_in_another_order_are_found(table: tuple[Schedule, int, int]) -> None:
    schedule, device, _ = table
    traffic = messages(schedule, chain(schedule.stages))
    posted = {receiver: traffic.incoming(receiver) for receiver in range(schedule.devices)}
    check_schedule(schedule, posted=posted)
    assume(any(len(sent) > 1 for sent in posted[device].values()))
    reversed_order = {sender: sent[::-1] for sender, sent in posted[device].items()}
    with pytest.raises(ScheduleError, match="but it matches the receive of"):
        check_schedule(schedule, posted={**posted, device: reversed_order})


def test_receives_too_few_or_too_many_are_found() -> None:
    schedule = build_schedule("gpipe", micro_batches=2, device_of=(0, 1))
    traffic = messages(schedule, chain(2))
    sent = traffic.incoming(1)[0]
    with pytest.raises(ScheduleError, match=r"Device 0 sends .* after F1@0, but it matches no receive"):
        check_schedule(schedule, posted={0: traffic.incoming(0), 1: {0: sent[:1]}})
    with pytest.raises(ScheduleError, match=r"Device 1 posts a receive of .*, which device 0 never sends"):
        check_schedule(schedule, posted={0: traffic.incoming(0), 1: {0: (*sent, sent[0])}})


def test_live_micro_batches_last_until_the_weight_gradient() -> None:
    rows = (tuple(map(action, ("F0@0", "I0@0", "F1@0", "I1@0", "W0@0", "W1@0"))),)
    assert live_micro_batches(Schedule(name="own", micro_batches=2, device_of=(0,), table=rows)) == (2,)
