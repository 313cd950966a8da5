"""Functions of keras.ops in a model's graph, such as the sum in `x + 3`, as torch modules."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.models.from_keras.leaf import KerasCall, Leaf, ToLeaf

__all__ = ["OPERATIONS"]


class Operate(nn.Module):
    """A function of values and numbers; `numbers` has None at the places of the values."""

    def __init__(self, function: Callable[..., Tensor], numbers: tuple[float | None, ...]) -> None:
        super().__init__()
        self.function, self.numbers = function, numbers

    def forward(self, *values: Tensor) -> Tensor:
        remaining = iter(values)
        return self.function(*(next(remaining) if number is None else number for number in self.numbers))


def _elementwise(function: Callable[..., Any]) -> ToLeaf:
    def to_leaf(call: KerasCall) -> Leaf | None:
        arguments = call.arguments.args
        numbers = tuple(part if isinstance(part, int | float) else None for part in arguments)
        # Of different ranks, Keras lines up the last dimensions.
        has_one_rank = len({len(shape) for shape in call.shapes}) == 1
        if call.arguments.kwargs or numbers.count(None) != len(call.shapes) or not has_one_rank:
            return None
        return Leaf(module=Operate(function, numbers), form=None)

    return to_leaf


OPERATIONS: dict[str, ToLeaf] = {
    "Absolute": _elementwise(torch.abs),
    "Add": _elementwise(operator.add),
    "Divide": _elementwise(operator.truediv),
    "Exp": _elementwise(torch.exp),
    "HardSigmoid": _elementwise(functional.hardsigmoid),
    "HardSilu": _elementwise(functional.hardswish),
    "Multiply": _elementwise(operator.mul),
    "Negative": _elementwise(operator.neg),
    "Relu": _elementwise(functional.relu),
    "Relu6": _elementwise(functional.relu6),
    "Sigmoid": _elementwise(functional.sigmoid),
    "Silu": _elementwise(functional.silu),
    "Sqrt": _elementwise(torch.sqrt),
    "Square": _elementwise(torch.square),
    "Subtract": _elementwise(operator.sub),
    "Tanh": _elementwise(torch.tanh),
    "TrueDivide": _elementwise(operator.truediv),
}
