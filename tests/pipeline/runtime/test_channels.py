"""Messages between real ranks: their order, their form in memory, and the buffers they use again."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from drivetrain.pipeline.runtime.channels import (
    RankChannel,
    ValueSpec,
    from_wire,
    memory_order,
    to_wire,
    wire_spec,
)
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.schedules.traffic import Message

SPECS = {
    "image": ValueSpec((2, 3, 4, 5), torch.float32),
    "row": ValueSpec((2, 7), torch.float64),
    "label": ValueSpec((2,), torch.int64),
    "half": ValueSpec((2, 3), torch.bfloat16),
}


def _message(value: str, micro_batch: int = 0, *, sender: int = 0) -> Message:
    receiver = 1 - sender
    return Message(
        value=value,
        micro_batch=micro_batch,
        from_stage=sender,
        to_stage=receiver,
        is_gradient=sender > receiver,
        from_device=sender,
        to_device=receiver,
    )


def _value(message: Message) -> Tensor:
    spec = SPECS[message.value]
    count = torch.Size(spec.shape).numel()
    return (torch.arange(count).view(spec.shape) + 100 * message.micro_batch).to(spec.dtype)


def _channel(group: ReplicaGroup) -> RankChannel:
    return RankChannel(
        devices=group, device=torch.device("cpu"), spec_of=lambda message: SPECS[message.value]
    )


def _exchange(group: ReplicaGroup, wanted: list[int]) -> tuple[list[Tensor], int]:
    """Rank 0 sends one of each kind and five images; rank 1 takes them in the order it wants."""
    channel = _channel(group)
    sent = [*(_message(name) for name in SPECS), *(_message("image", index) for index in range(1, 6))]
    channel.begin({0: sent} if group.rank == 1 else {})
    found = []
    if group.rank == 0:
        for message in sent:
            channel.send(message, _value(message))
    else:
        found = [channel.receive(sent[index]).clone() for index in wanted]
    channel.finish()
    assert channel.wait_seconds >= 0.0
    return found, channel.bytes_sent


@pytest.mark.parametrize(
    "wanted", [list(range(9)), [8, 3, 0, 1, 2, 7, 6, 5, 4]], ids=["in order", "late first"]
)
def test_every_message_arrives_as_it_was(rank_pool: RankPool, wanted: list[int]) -> None:
    (_, sent_bytes), (found, nothing) = rank_pool.run(_exchange, wanted, ranks=2)
    sent = [*(_message(name) for name in SPECS), *(_message("image", index) for index in range(1, 6))]
    for index, value in zip(wanted, found, strict=True):
        assert value.dtype == SPECS[sent[index].value].dtype
        assert torch.equal(value, _value(sent[index]))
    assert sent_bytes == sum(_value(message).nbytes for message in sent)
    assert nothing == 0


def _both_ways(group: ReplicaGroup, rounds: int) -> tuple[bool, int]:
    """Both send before either receives, update after update; how many buffers that took."""
    channel = _channel(group)
    places: set[int] = set()
    right = True
    for update in range(rounds):
        own, other = (_message("image", update, sender=rank) for rank in (group.rank, 1 - group.rank))
        channel.begin({1 - group.rank: [other]})
        channel.send(own, _value(own))
        found = channel.receive(other)
        right = right and torch.equal(found, _value(other))
        places.add(found.untyped_storage().data_ptr())
        channel.recycle([found])
        channel.finish()
    return right, len(places)


def test_buffers_are_used_again(rank_pool: RankPool) -> None:
    assert rank_pool.run(_both_ways, 6, ranks=2) == [(True, 1), (True, 1)]


def test_images_travel_channels_last_without_a_copy() -> None:
    image = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    wire = to_wire(image)
    spec = ValueSpec((2, 3, 4, 5), torch.float32)
    assert tuple(wire.shape) == wire_spec(spec).shape == (2, 4, 5, 3)
    assert wire.is_contiguous()
    assert wire.data_ptr() == image.data_ptr()
    back = from_wire(wire, spec=spec)
    assert torch.equal(back, image)
    assert back.is_contiguous(memory_format=torch.channels_last)
    assert to_wire(image.contiguous()).data_ptr() != image.data_ptr()
    assert wire_spec(ValueSpec((2, 7), torch.int64)) == ValueSpec((2, 7), torch.int64)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4, 5), ()])
@pytest.mark.parametrize("is_conjugate", [False, True])
def test_complex_numbers_travel_as_pairs_of_real_ones(shape: tuple[int, ...], is_conjugate: bool) -> None:
    value = torch.randn(shape, dtype=torch.complex64)
    value = value.conj() if is_conjugate else value
    spec = ValueSpec(shape, torch.complex64)
    wire = to_wire(value)
    assert ValueSpec(tuple(wire.shape), wire.dtype) == wire_spec(spec)
    assert wire.dtype == torch.float32
    assert torch.equal(from_wire(wire, spec=spec), value)


SHAPES = [(2, 3, 4, 5), (2, 1, 4, 5), (1, 1, 4, 5), (2, 3, 1, 1), (1, 3, 4, 1), (2, 3, 1, 5), (1, 1, 1, 1)]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_images_arrive_with_the_strides_they_had(
    shape: tuple[int, ...], memory_format: torch.memory_format
) -> None:
    image = torch.empty(shape, memory_format=memory_format).normal_()
    _check_way_back(image)


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(2, 3, 4, 5).permute(0, 2, 3, 1),
        torch.randn(2, 5, 7).transpose(1, 2),
        torch.randn(2, 3, 4, 5, 6).permute(0, 4, 1, 2, 3),
        torch.randn(()),
    ],
    ids=["rows first", "transposed", "volume", "number"],
)
def test_other_values_arrive_with_the_strides_they_had(value: Tensor) -> None:
    _check_way_back(value)


def _check_way_back(value: Tensor) -> None:
    order = memory_order(value)
    wire = to_wire(value, order)
    assert wire.data_ptr() == value.data_ptr()
    spec = ValueSpec(tuple(value.shape), value.dtype, order)
    assert tuple(wire.shape) == wire_spec(spec).shape
    back = from_wire(wire, spec=spec)
    assert torch.equal(back, value)
    assert back.stride() == value.stride()
    # A buffer that is given back serves the same message again.
    assert to_wire(back, memory_order(back)).shape == wire.shape


def test_a_value_with_gaps_arrives_without_them() -> None:
    value = torch.randn(2, 1, 4, 5).expand(2, 3, 4, 5)[:, :, ::2]
    order = memory_order(value)
    back = from_wire(to_wire(value, order), spec=ValueSpec(tuple(value.shape), value.dtype, order))
    assert torch.equal(back, value)


def test_a_message_says_what_it_is() -> None:
    message = _message("image", 3)
    assert str(message) == "image of micro-batch 3 from stage 0 to 1"
    assert str(replace(message, is_gradient=True)).startswith("the gradient of image")


class _SlowWork:
    """A send that is over once somebody has waited for it."""

    def __init__(self) -> None:
        self.is_over = False

    def is_completed(self) -> bool:
        return self.is_over

    def wait(self) -> None:
        self.is_over = True


def test_the_oldest_sends_are_waited_for_where_too_many_are_under_way() -> None:
    channel = RankChannel(
        devices=ReplicaGroup(), device=torch.device("cpu"), spec_of=lambda _: ValueSpec((1,), torch.float32)
    )
    works = [_SlowWork() for _ in range(5)]
    channel._sending = [(work, torch.zeros(1)) for work in works]  # type: ignore[misc]
    channel.hold_back(2)
    assert [work.is_over for work in works] == [True, True, True, False, False]
    assert len(channel._sending) == 2
