"""The memory of each device over the course of an update, found by walking through its row of the schedule.

Values passed between stages of one device count once. Buffers that a channel holds until they are sent are
not counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drivetrain.schedules.actions import Action, Edge, Kind, Schedule

__all__ = ["ActionBytes", "DeviceCourse", "HeldBytes", "StageNeeds", "held_bytes", "memory_courses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNeeds:
    """The bytes that one micro-batch needs in a stage.

    `inputs`: the values the stage receives. `saved`: everything else it keeps for the backward pass.
    `kept_outputs`: the part of `saved` that the stage also sends to others. `forward`: the peak of a forward
    pass, without its inputs. `working`: the temporary memory of a backward pass. `deferred`: what is kept for
    weight gradients that are computed later. `gradients`: the gradients that the stage receives for its
    outputs.
    """

    inputs: dict[str, int]
    kept_outputs: dict[str, int]
    saved: int
    forward: int
    working: int
    deferred: int
    gradients: int
    recomputes: bool


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """The memory of a device at its peak: the activations it holds, and what the running pass adds."""

    activations: int
    working: int

    @property
    def total(self) -> int:
        return self.activations + self.working


@dataclass(frozen=True, slots=True)
class ActionBytes:
    """What a device holds of activations during an action, and between it and the next one."""

    action: Action
    during: HeldBytes
    after: int

    @property
    def most(self) -> int:
        """The most from the start of the action to the start of the next one."""
        return max(self.during.total, self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCourse:
    """The memory of a device over an update: `lasting` throughout, `update` during the optimiser's step."""

    lasting: int
    actions: tuple[ActionBytes, ...]
    update: int

    @property
    def peak(self) -> int:
        return self.lasting + max([self.update, *(each.most for each in self.actions)])


def held_bytes(
    schedule: Schedule, *, edges: Sequence[Edge], needs: Sequence[StageNeeds], bytes_of: Mapping[str, int]
) -> tuple[HeldBytes, ...]:
    """The peak of every device within one update."""
    return tuple(
        max((each.during for each in course), key=lambda moment: moment.total)
        for course in memory_courses(schedule, edges=edges, needs=needs, bytes_of=bytes_of)
    )


def memory_courses(
    schedule: Schedule, *, edges: Sequence[Edge], needs: Sequence[StageNeeds], bytes_of: Mapping[str, int]
) -> tuple[tuple[ActionBytes, ...], ...]:
    """What every device holds during and after each of its actions."""
    return tuple(
        tuple(_Walk(schedule, device, edges, needs, bytes_of).actions()) for device in range(schedule.devices)
    )


class _Shelf:
    """Counts bytes by reference: a thing that several stages hold counts once, until the last releases it."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._things: dict[tuple[str, str | int, int], tuple[int, int]] = {}

    def put(self, kind: str, name: str | int, micro_batch: int, size: int) -> None:
        count, _ = self._things.get((kind, name, micro_batch), (0, 0))
        self._things[kind, name, micro_batch] = (count + 1, size)
        self.held_bytes += 0 if count else size

    def take(self, kind: str, name: str | int, micro_batch: int) -> None:
        count, size = self._things.pop((kind, name, micro_batch))
        if count > 1:
            self._things[kind, name, micro_batch] = (count - 1, size)
        else:
            self.held_bytes -= size


class _Walk:
    """Walks through the actions of one device and tracks everything it holds."""

    def __init__(
        self,
        schedule: Schedule,
        device: int,
        edges: Sequence[Edge],
        needs: Sequence[StageNeeds],
        bytes_of: Mapping[str, int],
    ) -> None:
        self._row, self._needs, self._bytes_of = schedule.table[device], needs, bytes_of
        home = schedule.device_of
        inner = [edge for edge in edges if home[edge.producer] == home[edge.consumer] == device]
        stages = range(schedule.stages)
        self._read = {stage: [edge for edge in inner if edge.consumer == stage] for stage in stages}
        self._given = {stage: [edge for edge in inner if edge.producer == stage] for stage in stages}
        self._shelf = _Shelf()

    def actions(self) -> Iterator[ActionBytes]:
        """The memory during and after each action."""
        for action in self._row:
            during = self._during(action, self._needs[action.stage])
            yield ActionBytes(action, during, self._shelf.held_bytes)

    def _during(self, action: Action, need: StageNeeds) -> HeldBytes:
        if action.kind is Kind.FORWARD:
            return self._begin(action, need)
        if action.kind is not Kind.WEIGHT:
            return self._go_back(action, need)
        moment = HeldBytes(self._shelf.held_bytes, 0)
        self._shelf.take("deferred", action.stage, action.micro_batch)
        return moment

    def _begin(self, action: Action, need: StageNeeds) -> HeldBytes:
        shelf, micro_batch = self._shelf, action.micro_batch
        for value, size in need.inputs.items():
            shelf.put("value", value, micro_batch, size)
        moment = HeldBytes(shelf.held_bytes, need.forward)
        # The stage now holds these values as its inputs; the reference of the message is released only after
        # that, so that a value passed within the device never counts twice and never disappears in between.
        for edge in self._read[action.stage]:
            shelf.take("value", edge.value, micro_batch)
        if not need.recomputes:
            own = need.saved - sum(need.kept_outputs.values())
            shelf.put("saved", action.stage, micro_batch, own)
            for value, size in need.kept_outputs.items():
                shelf.put("value", value, micro_batch, size)
        for edge in self._given[action.stage]:
            shelf.put("value", edge.value, micro_batch, self._bytes_of[edge.value])
        return moment

    def _go_back(self, action: Action, need: StageNeeds) -> HeldBytes:
        """A backward pass; INPUT actions keep what the weight gradients will need later."""
        shelf, micro_batch = self._shelf, action.micro_batch
        for edge in self._given[action.stage]:
            if edge.has_gradient:
                shelf.take("gradient", f"{edge.value} of {edge.consumer}", micro_batch)
        if need.recomputes:
            # The gradients of the outputs are held while the forward pass is repeated.
            repeating = need.gradients + need.forward - need.saved
            shelf.put("saved", action.stage, micro_batch, need.saved)
            moment = HeldBytes(shelf.held_bytes, max(need.working, repeating))
        else:
            moment = HeldBytes(shelf.held_bytes, need.working)
        self._end(action, need)
        if action.kind is Kind.INPUT:
            shelf.put("deferred", action.stage, micro_batch, need.deferred)
        for edge in self._read[action.stage]:
            if edge.has_gradient:
                size = self._bytes_of[edge.value]
                shelf.put("gradient", f"{edge.value} of {edge.consumer}", micro_batch, size)
        return moment

    def _end(self, action: Action, need: StageNeeds) -> None:
        names: list[tuple[str, str | int]] = [("value", value) for value in need.inputs]
        names.append(("saved", action.stage))
        if not need.recomputes:
            names += [("value", value) for value in need.kept_outputs]
        for kind, name in names:
            self._shelf.take(kind, name, action.micro_batch)
