"""All forwards, then all backwards: every leg keeps all micro-batches alive."""

from collections.abc import Iterator

from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.legs import Legs, Table, rows_of

__all__ = ["gpipe_table"]


def gpipe_table(legs: Legs, *, micro_batches: int) -> Table:
    """Leg by leg, so that a device with several legs waits only while the first micro-batch comes round."""
    return rows_of(_order(legs.count, micro_batches), legs)


def _order(legs: int, micro_batches: int) -> Iterator[Action]:
    for leg in range(legs):
        yield from (Action(Kind.FORWARD, leg, micro_batch) for micro_batch in range(micro_batches))
    for leg in reversed(range(legs)):
        yield from (Action(Kind.BACKWARD, leg, micro_batch) for micro_batch in range(micro_batches))
