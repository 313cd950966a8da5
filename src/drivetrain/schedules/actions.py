"""The words of a pipeline schedule: what a device does, when, and what travels between stages."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Action", "Edge", "Kind", "Schedule"]


class Kind(Enum):
    """What a stage does with a micro-batch; BACKWARD is INPUT and WEIGHT in one."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT = "I"
    WEIGHT = "W"


@dataclass(frozen=True, slots=True)
class Action:
    """One stage, one micro-batch, one thing to do."""

    kind: Kind
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind.value}{self.micro_batch}@{self.stage}"


@dataclass(frozen=True, slots=True)
class Edge:
    """A value that stage `producer` computes and the later stage `consumer` reads.

    A value of whole numbers has no gradient that would go back.
    """

    value: str
    producer: int
    consumer: int
    has_gradient: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A table: for every device of a replica, its actions in order; `device_of` has an entry per stage."""

    name: str
    micro_batches: int
    device_of: tuple[int, ...]
    table: tuple[tuple[Action, ...], ...]

    @property
    def stages(self) -> int:
        return len(self.device_of)

    @property
    def devices(self) -> int:
        return len(self.table)
