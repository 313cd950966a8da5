"""Schedules that follow a fixed order: sequential, GPipe and grouped."""

from collections.abc import Iterator

from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.legs import Legs, Table, rows_of

__all__ = ["gpipe_table", "grouped_table", "sequential_table"]


def sequential_table(legs: Legs, *, micro_batches: int) -> Table:
    """The table with the least memory: one live micro-batch on every leg."""
    return rows_of(_sequential_order(legs.count, micro_batches), legs)


def _sequential_order(legs: int, micro_batches: int) -> Iterator[Action]:
    for micro_batch in range(micro_batches):
        for leg in range(legs):
            yield Action(Kind.FORWARD, leg, micro_batch)
        for leg in reversed(range(legs)):
            yield Action(Kind.BACKWARD, leg, micro_batch)


# All forwards, then all backwards: every leg keeps all micro-batches alive.


def gpipe_table(legs: Legs, *, micro_batches: int) -> Table:
    """Leg by leg, so that a device with several legs waits only while the first micro-batch comes round."""
    return rows_of(_gpipe_order(legs.count, micro_batches), legs)


def _gpipe_order(legs: int, micro_batches: int) -> Iterator[Action]:
    for leg in range(legs):
        yield from (Action(Kind.FORWARD, leg, micro_batch) for micro_batch in range(micro_batches))
    for leg in reversed(range(legs)):
        yield from (Action(Kind.BACKWARD, leg, micro_batch) for micro_batch in range(micro_batches))


# All devices in step: in every tick each leg does one forward and one backward.


def grouped_table(legs: Legs, *, micro_batches: int) -> Table:
    """Leg l of L keeps 2 (L - l) - 1 micro-batches alive: 7, 5, 3, 1 on four.

    Values and gradients cross one cut per tick. In tick t leg l runs micro-batch t - l forward and then
    micro-batch t - (2 L - 2 - l) backward, so that the last leg turns a micro-batch round within a tick.
    """
    ticks = micro_batches + 2 * legs.count - 2
    order = (action for tick in range(ticks) for action in _tick(tick, legs.count))
    return rows_of((action for action in order if 0 <= action.micro_batch < micro_batches), legs)


def _tick(tick: int, legs: int) -> Iterator[Action]:
    for leg in reversed(range(legs)):
        yield Action(Kind.FORWARD, leg, tick - leg)
    for leg in range(legs):
        yield Action(Kind.BACKWARD, leg, tick - (2 * legs - 2 - leg))
