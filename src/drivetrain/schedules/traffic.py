"""The messages of a schedule: which must arrive before an action, and which are sent after it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drivetrain.schedules.actions import Action, Dependencies, Edge, Kind, Schedule

__all__ = ["Message", "Traffic", "messages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A value of one micro-batch sent to another device, or its gradient sent back."""

    value: str
    micro_batch: int
    from_stage: int
    to_stage: int
    is_gradient: bool
    from_device: int
    to_device: int

    def __str__(self) -> str:
        what = f"the gradient of {self.value}" if self.is_gradient else self.value
        return f"{what} of micro-batch {self.micro_batch} from stage {self.from_stage} to {self.to_stage}"


_PerAction = tuple[tuple[tuple[Message, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """All messages of one update of a replica, used by the runtime, the checker and the simulator.

    A device sends in the order of its table, and after one action in the order of the edges. Messages from
    one sender arrive in the order in which it sends them. Sender and receiver both derive the order from
    here: NCCL matches messages by order alone.
    """

    arriving: _PerAction
    leaving: _PerAction
    _incoming: tuple[dict[int, tuple[Message, ...]], ...]

    def before(self, device: int, index: int) -> tuple[Message, ...]:
        """The messages that must have arrived before a device starts the action at this index."""
        return self.arriving[device][index]

    def after(self, device: int, index: int) -> tuple[Message, ...]:
        """The messages that a device sends after the action at this index."""
        return self.leaving[device][index]

    def incoming(self, device: int) -> dict[int, tuple[Message, ...]]:
        """For each device that sends to this one, its messages in the order in which they arrive."""
        return self._incoming[device]

    def bytes_from_stage(self, stage: int, *, bytes_of: Mapping[str, int]) -> int:
        """Bytes a stage sends to other devices in one update; `bytes_of` counts one micro-batch."""
        return sum(bytes_of[message.value] for message in self._sent() if message.from_stage == stage)

    def _sent(self) -> Iterator[Message]:
        return _in_order(self.leaving)


def messages(schedule: Schedule, edges: Sequence[Edge]) -> Traffic:
    """Derives the messages of a schedule from the edges between its stages."""
    between = _Between(Dependencies(edges, stages=schedule.stages), device_of=schedule.device_of)
    leaving = tuple(tuple(between.after(action) for action in row) for row in schedule.table)
    return Traffic(
        tuple(tuple(between.before(action) for action in row) for row in schedule.table),
        leaving,
        tuple(_by_sender(leaving, device) for device in range(schedule.devices)),
    )


def _in_order(leaving: _PerAction) -> Iterator[Message]:
    return (message for row in leaving for sent in row for message in sent)


def _by_sender(leaving: _PerAction, device: int) -> dict[int, tuple[Message, ...]]:
    """The messages to a device by sender, in the order in which they are sent."""
    by_sender: dict[int, list[Message]] = {}
    for message in _in_order(leaving):
        if message.to_device == device:
            by_sender.setdefault(message.from_device, []).append(message)
    return {sender: tuple(sent) for sender, sent in by_sender.items()}


class _Between:
    """Finds the messages of one action: the edges that cross from one device to another."""

    def __init__(self, dependencies: Dependencies, *, device_of: tuple[int, ...]) -> None:
        self._dependencies = dependencies
        self._device_of = device_of

    def before(self, action: Action) -> tuple[Message, ...]:
        if action.kind is Kind.WEIGHT:
            return ()
        if action.kind is Kind.FORWARD:
            return self._values(self._dependencies.sources(action.stage), action.micro_batch)
        return self._gradients(self._dependencies.readers(action.stage), action.micro_batch)

    def after(self, action: Action) -> tuple[Message, ...]:
        if action.kind is Kind.WEIGHT:
            return ()
        if action.kind is Kind.FORWARD:
            return self._values(self._dependencies.readers(action.stage), action.micro_batch)
        return self._gradients(self._dependencies.sources(action.stage), action.micro_batch)

    def _values(self, edges: Sequence[Edge], micro_batch: int) -> tuple[Message, ...]:
        return self._across(
            [(edge.value, edge.producer, edge.consumer) for edge in edges], micro_batch, is_gradient=False
        )

    def _gradients(self, edges: Sequence[Edge], micro_batch: int) -> tuple[Message, ...]:
        return self._across(
            [(edge.value, edge.consumer, edge.producer) for edge in edges if edge.has_gradient],
            micro_batch,
            is_gradient=True,
        )

    def _across(
        self, ways: Sequence[tuple[str, int, int]], micro_batch: int, *, is_gradient: bool
    ) -> tuple[Message, ...]:
        device_of = self._device_of
        return tuple(
            Message(
                value=value,
                micro_batch=micro_batch,
                from_stage=start,
                to_stage=end,
                is_gradient=is_gradient,
                from_device=device_of[start],
                to_device=device_of[end],
            )
            for value, start, end in ways
            if device_of[start] != device_of[end]
        )
