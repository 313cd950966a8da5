"""The parts of a pipeline schedule: actions, the edges between stages, dependencies, and the table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Action", "Dependencies", "Edge", "Kind", "Schedule", "ScheduleError", "chain", "outcome", "walk"]


class Kind(Enum):
    """What a stage does with a micro-batch; BACKWARD computes the gradients of both INPUT and WEIGHT."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT = "I"
    WEIGHT = "W"


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a schedule: a stage runs one kind of pass for one micro-batch."""

    kind: Kind
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind.value}{self.micro_batch}@{self.stage}"


@dataclass(frozen=True, slots=True)
class Edge:
    """A value that stage `producer` computes and the later stage `consumer` reads.

    An integer value has no gradient to send back.
    """

    value: str
    producer: int
    consumer: int
    has_gradient: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """For every device of a replica, its actions in order (`table`); `device_of` has an entry per stage."""

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


class ScheduleError(ValueError):
    """A schedule that cannot run to its end; the message names the device and the action."""


def chain(stages: int) -> tuple[Edge, ...]:
    """The edges of a model without skip connections: every stage feeds the next."""
    return tuple(Edge(f"stage_{stage}", stage, stage + 1) for stage in range(stages - 1))


def outcome(action: Action) -> Action:
    """The result that other actions wait for: BACKWARD yields the gradient of the input, as INPUT does."""
    if action.kind is Kind.BACKWARD:
        return Action(Kind.INPUT, action.stage, action.micro_batch)
    return action


class Dependencies:
    """The edges of a model by producer and by consumer, and what each action must wait for."""

    def __init__(self, edges: Sequence[Edge], *, stages: int) -> None:
        self._sources: list[list[Edge]] = [[] for _ in range(stages)]
        self._readers: list[list[Edge]] = [[] for _ in range(stages)]
        for edge in edges:
            if not 0 <= edge.producer < edge.consumer < stages:
                raise ScheduleError(f"{edge} does not go from a stage to a later one of the {stages} stages.")
            self._sources[edge.consumer].append(edge)
            self._readers[edge.producer].append(edge)

    def sources(self, stage: int) -> Sequence[Edge]:
        """The edges that end at a stage, in the order given."""
        return self._sources[stage]

    def readers(self, stage: int) -> Sequence[Edge]:
        """The edges that begin at a stage, in the order given."""
        return self._readers[stage]

    def needs(self, action: Action) -> tuple[Action, ...]:
        """The actions whose results must exist before an action can start."""
        stage, micro_batch = action.stage, action.micro_batch
        if action.kind is Kind.FORWARD:
            return tuple(Action(Kind.FORWARD, edge.producer, micro_batch) for edge in self._sources[stage])
        if action.kind is Kind.WEIGHT:
            return (Action(Kind.INPUT, stage, micro_batch),)
        gradients = (Action(Kind.INPUT, edge.consumer, micro_batch) for edge in self._readers[stage])
        return (Action(Kind.FORWARD, stage, micro_batch), *gradients)


def walk(
    schedule: Schedule,
    *,
    is_ready: Callable[[int, int], bool],
    perform: Callable[[int, int], None],
) -> tuple[int, ...]:
    """Runs every device as far as it can get; returns the number of actions each has performed.

    Both functions take a device and an index into its row. An action that is ready stays ready, so the result
    does not depend on the order in which devices are tried.
    """
    position = [0] * schedule.devices
    moved = True
    while moved:
        moved = False
        for device, row in enumerate(schedule.table):
            while position[device] < len(row) and is_ready(device, position[device]):
                perform(device, position[device])
                position[device] += 1
                moved = True
    return tuple(position)
