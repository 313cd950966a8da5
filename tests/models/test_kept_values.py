"""Values of modules that are put back, and tensors that get memory of their own."""

from collections import deque
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.models.kept_values import give_own_memory, keeping_values, own_copies
from drivetrain.models.module_values import note_moving


class _Keeping(nn.Module):
    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(2))
        self.first = self.table[:1]
        self.number = 1
        self.parts: dict[str, Any] = {"list": [1, 2], "table": self.table, "queue": deque([1])}
        self.pair = (self.table, [3])


def _change(model: _Keeping) -> None:
    model.table.add_(1)
    model.table = model.table + 1
    model.number += 1
    model.parts["list"].append(3)
    model.parts["queue"].clear()
    model.parts["new"] = 1
    model.pair[1][0] = 4
    model.weight.data.mul_(2)
    vars(model)["made"] = 1


def test_what_is_bound_and_its_contents_are_put_back() -> None:
    model = _Keeping()
    note_moving(model, {"weight", "made"})
    table, parts, pair = model.table, model.parts, model.pair
    with keeping_values(model):
        _change(model)
    assert model.table is table
    assert table.tolist() == [0, 0, 0]
    assert model.first.tolist() == [0]
    assert model.number == 1
    assert (model.parts, model.pair) == (parts, pair)
    assert model.parts is parts
    assert parts == {"list": [1, 2], "table": table, "queue": deque([1])}
    assert pair[1] == [3]
    assert model.weight.tolist() == [1, 1]
    assert not hasattr(model, "made")


def test_an_error_does_not_keep_values_from_being_put_back() -> None:
    model = _Keeping()

    def break_off() -> None:
        with keeping_values(model):
            _change(model)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert model.number == 1


def test_copies_share_memory_as_their_tensors_do() -> None:
    whole = torch.arange(4.0)
    copies = own_copies([whole, whole[2:], torch.zeros(2)])
    copies[0].add_(1)
    assert copies[1].tolist() == [3, 4]
    assert whole.tolist() == [0, 1, 2, 3]


def test_buffers_that_overlap_or_are_shared_get_memory_of_their_own() -> None:
    model = nn.Module()
    shared = torch.ones(2).share_memory_()  # type: ignore[no-untyped-call]
    model.register_buffer("expanded", torch.ones(1).expand(3))
    model.register_buffer("shared", shared)
    model.register_buffer("own", torch.ones(2))
    model.plain = torch.ones(1).expand(3)
    model.moving = torch.ones(1).expand(3)
    own, plain = model.own, model.plain
    note_moving(model, {"moving"})
    give_own_memory(model)
    model.get_buffer("expanded").copy_(torch.arange(3.0))
    model.get_buffer("shared").zero_()
    assert model.get_buffer("expanded").tolist() == [0, 1, 2]
    assert shared.tolist() == [1, 1]
    assert isinstance(model.moving, Tensor)
    assert model.moving.stride() == (1,)
    assert model.own is own
    assert model.plain is plain
