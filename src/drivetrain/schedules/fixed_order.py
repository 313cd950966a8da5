"""Schedules that follow a fixed order: sequential, GPipe and grouped."""

from collections.abc import Iterator

from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.legs import Legs, Table, rows_of

__all__ = ["gpipe_table", "grouped_table", "sequential_table"]


def sequential_table(legs: Legs, *, micro_batches: int) -> Table:
    """One micro-batch after the other: least memory, with one live micro-batch on every leg."""
    return rows_of(_sequential_order(legs.count, micro_batches), legs)


def _sequential_order(legs: int, micro_batches: int) -> Iterator[Action]:
    for micro_batch in range(micro_batches):
        for leg in range(legs):
            yield Action(Kind.FORWARD, leg, micro_batch)
        for leg in reversed(range(legs)):
            yield Action(Kind.BACKWARD, leg, micro_batch)


def gpipe_table(legs: Legs, *, micro_batches: int) -> Table:
    """All forward passes, then all backward passes: every leg keeps all micro-batches alive.

    The order goes leg by leg, so that a device with several legs idles only until the first micro-batch
    reaches its next leg.
    """
    return rows_of(_gpipe_order(legs.count, micro_batches), legs)


def _gpipe_order(legs: int, micro_batches: int) -> Iterator[Action]:
    for leg in range(legs):
        yield from (Action(Kind.FORWARD, leg, micro_batch) for micro_batch in range(micro_batches))
    for leg in reversed(range(legs)):
        yield from (Action(Kind.BACKWARD, leg, micro_batch) for micro_batch in range(micro_batches))


def grouped_table(legs: Legs, *, micro_batches: int) -> Table:
    """All devices in lockstep: in every tick each leg runs one forward and one backward pass.

    Leg l of L keeps 2 (L - l) - 1 micro-batches alive: 7, 5, 3, 1 for four legs. Values and gradients advance
    by one leg per tick. In tick t leg l runs micro-batch t - l forward and then micro-batch
    t - (2 L - 2 - l) backward; the last leg does both for the same micro-batch.
    """
    ticks = micro_batches + 2 * legs.count - 2
    order = (action for tick in range(ticks) for action in _tick(tick, legs.count))
    return rows_of((action for action in order if 0 <= action.micro_batch < micro_batches), legs)


def _tick(tick: int, legs: int) -> Iterator[Action]:
    """One tick of all legs; micro-batches outside the update are left out by the caller."""
    for leg in reversed(range(legs)):
        yield Action(Kind.FORWARD, leg, tick - leg)
    for leg in range(legs):
        yield Action(Kind.BACKWARD, leg, tick - (2 * legs - 2 - leg))
