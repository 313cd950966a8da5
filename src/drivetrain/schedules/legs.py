"""Legs: runs of consecutive stages on the same device, which a schedule treats as one stage.

Generators order legs, not stages, so that two consecutive legs are never on the same device.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from drivetrain.schedules.actions import Action, Kind

__all__ = ["Legs", "Table", "alternate", "join_legs", "rows_of", "spread"]

Table = tuple[tuple[Action, ...], ...]


@dataclass(frozen=True, slots=True)
class Legs:
    """The path of a micro-batch through the devices; a leg is one or more stages of its device."""

    stages: tuple[tuple[int, ...], ...]
    device_of: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.device_of)

    @property
    def devices(self) -> int:
        return max(self.device_of) + 1

    @property
    def one_per_device(self) -> bool:
        """Whether a micro-batch visits every device exactly once, as the published schedules assume."""
        return self.count == self.devices


def join_legs(device_of: Sequence[int]) -> Legs:
    """Joins consecutive stages that share a device."""
    legs = [tuple(group) for _, group in groupby(range(len(device_of)), key=device_of.__getitem__)]
    return Legs(stages=tuple(legs), device_of=tuple(device_of[leg[0]] for leg in legs))


def spread(table: Table, legs: Legs) -> Table:
    """Turns a table of legs into one of stages: forward passes run in stage order, all others in reverse."""
    return tuple(tuple(part for action in row for part in _parts(action, legs)) for row in table)


def _parts(action: Action, legs: Legs) -> list[Action]:
    stages = legs.stages[action.stage]
    ordered = stages if action.kind is Kind.FORWARD else stages[::-1]
    return [Action(action.kind, stage, action.micro_batch) for stage in ordered]


def rows_of(actions: Iterable[Action], legs: Legs) -> Table:
    """Distributes one sequence of all actions to the rows of the devices.

    If the order respects all dependencies, every row does too, and no deadlock is possible.
    """
    rows: list[list[Action]] = [[] for _ in range(legs.devices)]
    for action in actions:
        rows[legs.device_of[action.stage]].append(action)
    return tuple(tuple(row) for row in rows)


def alternate(forwards: Sequence[Action], backwards: Sequence[Action], *, warm_up: int) -> list[Action]:
    """`warm_up` forward passes, then backward and forward passes in turn, then remaining backward ones."""
    row = list(forwards[:warm_up])
    for done, backward in enumerate(backwards):
        row.append(backward)
        row.extend(forwards[warm_up + done : warm_up + done + 1])
    return row
