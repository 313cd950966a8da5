"""One micro-batch after the other: forward through all stages, then backward; one device works at a time."""

from collections.abc import Iterator

from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.legs import Legs, Table, rows_of

__all__ = ["sequential_table"]


def sequential_table(legs: Legs, *, micro_batches: int) -> Table:
    """The table with the least memory: one live micro-batch on every leg."""
    return rows_of(_order(legs.count, micro_batches), legs)


def _order(legs: int, micro_batches: int) -> Iterator[Action]:
    for micro_batch in range(micro_batches):
        for leg in range(legs):
            yield Action(Kind.FORWARD, leg, micro_batch)
        for leg in reversed(range(legs)):
            yield Action(Kind.BACKWARD, leg, micro_batch)
