"""Modules that cannot be traced for one reason are found together."""

import torch
from torch import Tensor, nn

from drivetrain.pipeline.graph.trace import trace_model

NUM_BLOCKS = 12
# Not an attribute of the model: what a trace does to those is taken back.
_traces: list[int] = []


class _Picky(nn.Module):
    """Branches on its values; the last of them has a switch that avoids it."""

    def __init__(self, *, looks: bool = True) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.looks = looks

    def forward(self, values: Tensor) -> Tensor:
        if self.looks and values.sum() > 0:
            values = -values
        hidden: Tensor = self.inner(values)
        return hidden


class _Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([*(_Picky() for _ in range(NUM_BLOCKS)), _Picky(looks=False)])

    def forward(self, values: Tensor) -> Tensor:
        _traces.append(1)
        for block in self.blocks:
            values = block(values)
        return values


def test_the_model_is_not_traced_once_for_each_of_them() -> None:
    model = _Chain()
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    _traces.clear()
    names = [layer.name for layer in trace_model(model).layers]
    # The first attempt fails in its first mode; the second succeeds in both.
    assert len(_traces) == 3
    assert names[:NUM_BLOCKS] == [f"blocks.{index}" for index in range(NUM_BLOCKS)]
    for name, module in model.named_modules():
        assert vars(module).keys() == attributes[name].keys()


def test_one_of_the_kind_that_can_be_traced_is_not_kept_whole() -> None:
    names = [layer.name for layer in trace_model(_Chain()).layers]
    assert names[NUM_BLOCKS:] == [f"blocks.{NUM_BLOCKS}.inner"]


class _Shift(nn.Module):
    """Gives back its input in evaluation mode, where its code takes no step."""

    def forward(self, values: Tensor) -> Tensor:
        return values + 1 if self.training else values


class _Shifts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), _Shift()) for _ in range(NUM_BLOCKS))

    def forward(self, values: Tensor) -> Tensor:
        _traces.append(1)
        for block in self.blocks:
            values = block(values)
        return values


def test_modules_that_do_nothing_in_evaluation_are_found_together() -> None:
    _traces.clear()
    names = [layer.name for layer in trace_model(_Shifts()).layers]
    # The first attempt fails in evaluation mode; the second succeeds in both.
    assert len(_traces) == 4
    assert [name for name in names if name.endswith(".1")] == [f"blocks.{i}.1" for i in range(NUM_BLOCKS)]


class _Tied(nn.Module):
    """Reads a weight under two names and a buffer, in its own code."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(4))
        self.second = self.first
        self.register_buffer("shift", torch.ones(4))

    def forward(self, values: Tensor) -> Tensor:
        return values * self.first + values * self.second + self.shift


def test_weights_and_buffers_in_code_have_their_first_name() -> None:
    graph = trace_model(_Tied()).graph
    assert [node.target for node in graph.nodes if node.op == "get_attr"] == ["first", "shift"]
