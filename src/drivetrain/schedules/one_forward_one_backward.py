"""1F1B: a leg keeps at most as many micro-batches alive as there are legs from it to the last one."""

from collections.abc import Iterator

from drivetrain.schedules.actions import Action, Kind, Schedule
from drivetrain.schedules.legs import Legs, Table, alternate
from drivetrain.schedules.list_scheduling import list_table
from drivetrain.schedules.simulator import simulate

__all__ = ["one_forward_one_backward_table"]


def one_forward_one_backward_table(legs: Legs, *, micro_batches: int) -> Table:
    """The published table if every device has one leg, otherwise the fastest of several candidates."""
    if legs.one_per_device:
        return _textbook(legs, micro_batches)
    return min(_candidates(legs, micro_batches), key=lambda table: _length(table, legs, micro_batches))


def _textbook(legs: Legs, micro_batches: int) -> Table:
    """Leg l of L begins with L - l forward passes: 4, 3, 2, 1 live micro-batches for four legs."""
    rows: list[tuple[Action, ...]] = [()] * legs.devices
    for leg, device in enumerate(legs.device_of):
        forwards = [Action(Kind.FORWARD, leg, micro_batch) for micro_batch in range(micro_batches)]
        backwards = [Action(Kind.BACKWARD, leg, micro_batch) for micro_batch in range(micro_batches)]
        rows[device] = tuple(alternate(forwards, backwards, warm_up=legs.count - leg))
    return tuple(rows)


def _candidates(legs: Legs, micro_batches: int) -> Iterator[Table]:
    if _is_looped(legs):
        yield _looped(legs, micro_batches)
    # Which order is faster depends on the device mapping, so both are tried.
    for early_legs_first in (False, True):
        yield list_table(
            legs,
            micro_batches=micro_batches,
            live_caps=[legs.count - leg for leg in range(legs.count)],
            split_backward=False,
            early_legs_first=early_legs_first,
        )


def _is_looped(legs: Legs) -> bool:
    """Whether a micro-batch visits the devices in the same order several times (interleaved 1F1B)."""
    once = legs.device_of[: legs.devices]
    return len(set(once)) == len(once) and legs.device_of == once * (legs.count // legs.devices)


def _looped(legs: Legs, micro_batches: int) -> Table:
    """Interleaved 1F1B: groups of D micro-batches, one per device, run through all loops together.

    The device at place p of D, with V loops, begins with 2 (D - p - 1) + (V - 1) D + 1 forward passes. An
    incomplete last group leaves gaps.
    """
    devices, loops = legs.devices, legs.count // legs.devices
    # The table is built for complete groups; the actions of missing micro-batches are removed at the end.
    rounded_up = -(-micro_batches // devices) * devices
    rows: list[tuple[Action, ...]] = [()] * devices
    for place, device in enumerate(legs.device_of[:devices]):
        forwards = _turns(Kind.FORWARD, place, devices=devices, loops=range(loops), total=rounded_up)
        backwards = _turns(Kind.BACKWARD, place, devices=devices, loops=range(loops)[::-1], total=rounded_up)
        warm_up = 2 * (devices - place - 1) + (loops - 1) * devices + 1
        row = alternate(forwards, backwards, warm_up=warm_up)
        rows[device] = tuple(action for action in row if action.micro_batch < micro_batches)
    return tuple(rows)


def _turns(kind: Kind, place: int, *, devices: int, loops: range, total: int) -> list[Action]:
    return [
        Action(kind, loop * devices + place, micro_batch)
        for first in range(0, total, devices)
        for loop in loops
        for micro_batch in range(first, first + devices)
    ]


def _length(table: Table, legs: Legs, micro_batches: int) -> float:
    """The time that a table takes if all stages cost the same."""
    schedule = Schedule(name="1f1b", micro_batches=micro_batches, device_of=legs.device_of, table=table)
    sizes = [len(stages) for stages in legs.stages]
    return simulate(schedule, forward_s=sizes, backward_s=[2 * size for size in sizes]).seconds_per_update
