"""Channels carry values and gradients between stages: inside one process, or between ranks."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.schedules.traffic import Message

__all__ = [
    "Channel",
    "LocalChannel",
    "RankChannel",
    "ValueSpec",
    "from_wire",
    "memory_order",
    "to_wire",
    "wire_spec",
    "zeros_of",
]

# Two receives per sender, so that the next message can arrive while the last one is used.
_POSTED_AHEAD = 2
# Bounds the memory of receive buffers kept for reuse; counted per shape and type.
_LARGEST_POOL = 8


class Channel(Protocol):
    """Carries messages between stages; bytes sent and seconds waited add up over the training."""

    bytes_sent: int
    wait_seconds: float

    def begin(self, incoming: Mapping[int, Sequence[Message]]) -> None:
        """Announces the messages of an update, per sending device and in the order it sends them."""
        ...

    def send(self, message: Message, value: Tensor) -> None:
        """Sends a tensor, which must not be changed afterwards."""
        ...

    def has(self, message: Message) -> bool:
        """Whether `receive` would not fail; always true for a channel whose `receive` waits."""
        ...

    def receive(self, message: Message) -> Tensor:
        """Returns the tensor of a message; call it once per message."""
        ...

    def recycle(self, received: Sequence[Tensor]) -> None:
        """Gives received tensors back for reuse; nobody may read them any more."""
        ...

    def finish(self) -> None:
        """Waits until all sends have completed."""
        ...


class LocalChannel:
    """The channel of a process that runs all devices of a replica: tensors are passed on uncopied."""

    def __init__(self) -> None:
        self.bytes_sent = 0
        self.wait_seconds = 0.0
        self._mail: dict[Message, Tensor] = {}

    def begin(self, incoming: Mapping[int, Sequence[Message]]) -> None:
        pass

    def send(self, message: Message, value: Tensor) -> None:
        self._mail[message] = value
        self.bytes_sent += value.nbytes

    def has(self, message: Message) -> bool:
        return message in self._mail

    def receive(self, message: Message) -> Tensor:
        return self._mail.pop(message)

    def recycle(self, received: Sequence[Tensor]) -> None:
        pass

    def finish(self) -> None:
        assert not self._mail, "every message that was sent is received"


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """Shape and type of a value, and the order of its dimensions in memory (None: images channels last)."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    order: tuple[int, ...] | None = None


@dataclass(slots=True)
class _Posted:
    work: dist.Work
    wire: Tensor


class RankChannel:
    """The channel of one rank, over torch.distributed; `spec_of` gives shape and type of a message.

    Receives are posted ahead, in the order in which their sender sends. Sends overlap with computation and
    are waited for at the end of the update. A value arrives in the memory order it was sent in.
    """

    def __init__(
        self, *, devices: ReplicaGroup, device: torch.device, spec_of: Callable[[Message], ValueSpec]
    ) -> None:
        self.bytes_sent = 0
        self.wait_seconds = 0.0
        self._devices, self._device, self._spec_of = devices, device, spec_of
        self._pairs = _pair_groups(devices, device)
        self._sending: list[tuple[dist.Work, Tensor]] = []
        self._waiting: dict[int, list[Message]] = {}
        self._posted: dict[Message, _Posted] = {}
        self._pool: dict[tuple[tuple[int, ...], torch.dtype], list[Tensor]] = {}

    def begin(self, incoming: Mapping[int, Sequence[Message]]) -> None:
        self._waiting = {sender: list(reversed(messages)) for sender, messages in incoming.items()}
        for sender in self._waiting:
            self._post(sender, _POSTED_AHEAD)

    def has(self, message: Message) -> bool:  # noqa: ARG002
        return True

    def send(self, message: Message, value: Tensor) -> None:
        # A send reads its tensor until it completes, so the tensor is kept with it.
        self._sending = [(work, kept) for work, kept in self._sending if not work.is_completed()]
        wire = to_wire(value, self._spec_of(message).order)
        pair = (message.from_device, message.to_device)
        work = dist.isend(
            wire, dst=self._rank_of(message.to_device), group=self._pairs.get(pair, self._group)
        )
        assert work is not None
        self._sending.append((work, wire))
        self.bytes_sent += wire.nbytes

    def receive(self, message: Message) -> Tensor:
        sender = message.from_device
        while message not in self._posted:
            self._post(sender, 1)
        posted = self._posted.pop(message)
        # Post the next receive before waiting for this one: its message may arrive in the meantime.
        self._post(sender, _POSTED_AHEAD - sum(one.from_device == sender for one in self._posted))
        started = time.perf_counter()
        posted.work.wait()
        self.wait_seconds += time.perf_counter() - started
        return from_wire(posted.wire, spec=self._spec_of(message))

    def recycle(self, received: Sequence[Tensor]) -> None:
        for value in received:
            wire = to_wire(value.detach(), memory_order(value))
            pool = self._pool.setdefault((tuple(wire.shape), wire.dtype), [])
            if len(pool) < _LARGEST_POOL:
                pool.append(wire)

    def hold_back(self, most: int) -> None:
        """Waits for the oldest sends until at most `most` are pending."""
        self._sending = [(work, kept) for work, kept in self._sending if not work.is_completed()]
        while len(self._sending) > most:
            self._sending.pop(0)[0].wait()

    def finish(self) -> None:
        started = time.perf_counter()
        for work, _ in self._sending:
            work.wait()
        self._sending.clear()
        self.wait_seconds += time.perf_counter() - started

    @property
    def _group(self) -> dist.ProcessGroup | None:
        return self._devices.process_group

    def _rank_of(self, device: int) -> int:
        return self._devices._global_rank(device)

    def _post(self, sender: int, count: int) -> None:
        """Posts up to `count` more receives from a sender, in the order in which it sends."""
        for _ in range(min(count, len(self._waiting[sender]))):
            message = self._waiting[sender].pop()
            wire = self._buffer(self._spec_of(message))
            group = self._pairs.get((sender, message.to_device), self._group)
            work = dist.irecv(wire, src=self._rank_of(sender), group=group)
            assert work is not None
            self._posted[message] = _Posted(work, wire)

    def _buffer(self, spec: ValueSpec) -> Tensor:
        sent = wire_spec(spec)
        pool = self._pool.get((sent.shape, sent.dtype))
        return pool.pop() if pool else torch.empty(sent.shape, dtype=sent.dtype, device=self._device)


def memory_order(value: Tensor) -> tuple[int, ...]:
    """The dimensions of a tensor by their distance in memory, the farthest first.

    Among equal strides, dimensions of length 1 come last: this way the order of a channels-last image with
    one channel is that of all others.
    """
    places = zip(value.stride(), value.shape, strict=True)
    keys = [(-stride, length == 1) for stride, length in places]
    return tuple(sorted(range(value.dim()), key=keys.__getitem__))


def wire_spec(spec: ValueSpec) -> ValueSpec:
    """Shape and type in which a value is sent: dimensions in its order, complex numbers as two real ones."""
    shape = tuple(spec.shape[dim] for dim in spec.order or _usual_order(len(spec.shape)))
    if spec.dtype.is_complex:
        return ValueSpec((*shape, 2), spec.dtype.to_real())
    return ValueSpec(shape, spec.dtype)


def to_wire(value: Tensor, order: tuple[int, ...] | None = None) -> Tensor:
    """The value as a contiguous tensor; it is not copied if its dimensions have this order already."""
    wire = value.permute(order or _usual_order(value.dim())).contiguous()
    # No backend of torch.distributed sends complex numbers between two ranks.
    return torch.view_as_real(wire.resolve_conj()) if wire.is_complex() else wire


def from_wire(wire: Tensor, *, spec: ValueSpec) -> Tensor:
    """The received tensor in the shape and type its reader expects, without a copy."""
    value = torch.view_as_complex(wire) if spec.dtype.is_complex else wire
    assert math.prod(spec.shape) == value.numel()
    sent = spec.order or _usual_order(len(spec.shape))
    return value.permute([sent.index(dim) for dim in range(len(spec.shape))])


def zeros_of(spec: ValueSpec, *, device: torch.device | str) -> Tensor:
    """Zeros that lie in memory as a received value does."""
    sent = wire_spec(spec)
    return from_wire(torch.zeros(sent.shape, dtype=sent.dtype, device=device), spec=spec)


def _usual_order(dims: int) -> tuple[int, ...]:
    return (0, 2, 3, 1) if dims == 4 else tuple(range(dims))


def _pair_groups(devices: ReplicaGroup, device: torch.device) -> dict[tuple[int, int], dist.ProcessGroup]:
    """A process group for each direction between two devices, for NCCL.

    NCCL runs the messages of a group strictly in order: in a common group a send could wait behind a receive
    whose message the other side sends later, a deadlock. Gloo matches messages per sender and needs no
    groups. All ranks must create the groups in the same order.
    """
    if device.type == "cpu":
        return {}
    pairs: dict[tuple[int, int], dist.ProcessGroup] = {}
    for low in range(devices.size):
        for high in range(low + 1, devices.size):
            for pair in ((low, high), (high, low)):
                if devices.rank in pair:
                    ranks = [devices._global_rank(member) for member in pair]
                    pairs[pair] = dist.new_group(
                        sorted(ranks),
                        timeout=devices._timeout,
                        use_local_synchronization=True,
                        group_desc=f"pipeline {pair[0]} to {pair[1]}",
                    )
    return pairs
