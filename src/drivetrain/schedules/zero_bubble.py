"""ZB-H1 (zero bubble): splits backward passes, so that weight gradients fill idle time at the end."""

from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.legs import Legs, Table
from drivetrain.schedules.list_scheduling import list_table

__all__ = ["zero_bubble_table"]


def zero_bubble_table(legs: Legs, *, micro_batches: int) -> Table:
    """The published table if every device has one leg, else list scheduling with the same memory limit."""
    if not legs.one_per_device:
        return list_table(
            legs,
            micro_batches=micro_batches,
            live_caps=[legs.count] * legs.count,
            split_backward=True,
            early_legs_first=False,
        )
    rows: list[tuple[Action, ...]] = [()] * legs.devices
    for leg, device in enumerate(legs.device_of):
        rows[device] = tuple(_row(leg, legs=legs.count, micro_batches=micro_batches))
    return tuple(rows)


def _row(leg: int, *, legs: int, micro_batches: int) -> list[Action]:
    """Leg l delays its weight gradients by l micro-batches, which keeps L micro-batches alive on every leg.

    The order is I, W, F: a forward pass before W would keep one more alive.
    """
    warm_up = min(legs - leg, micro_batches)
    row = [Action(Kind.FORWARD, leg, micro_batch) for micro_batch in range(warm_up)]
    for micro_batch in range(micro_batches):
        row.append(Action(Kind.INPUT, leg, micro_batch))
        if micro_batch >= leg:
            row.append(Action(Kind.WEIGHT, leg, micro_batch - leg))
        if micro_batch + warm_up < micro_batches:
            row.append(Action(Kind.FORWARD, leg, micro_batch + warm_up))
    postponed = range(max(micro_batches - leg, 0), micro_batches)
    return [*row, *(Action(Kind.WEIGHT, leg, micro_batch) for micro_batch in postponed)]
