"""Copies of a model keep the hooks of its parameters."""

import pickle
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec
from drivetrain.models.own_model import OwnModel
from drivetrain.models.parameter_hooks import carry_hooks, copy_model
from drivetrain.ranks.sendable import require_sendable
from drivetrain.recipe.schema import Recipe


def double(gradient: Tensor) -> Tensor:
    return gradient * 2


def add_one(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.add_(1)


class _Net(nn.Module):
    """Its hooks know it: one scales by a number that it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 3)
        self.tied = self.line
        self.factor = 5.0
        self.line.weight.register_hook(double)  # type: ignore[no-untyped-call]
        self.line.weight.register_hook(self.scale)  # type: ignore[no-untyped-call]
        self.line.bias.register_post_accumulate_grad_hook(add_one)  # type: ignore[no-untyped-call]

    def scale(self, gradient: Tensor) -> Tensor:
        return gradient * self.factor

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.line(images)
        return result


def _gradients(model: _Net) -> list[float]:
    """The gradient of every parameter, all of whose elements have the same."""
    model.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    return [float(parameter.grad.mean()) for parameter in model.parameters() if parameter.grad is not None]


def test_the_copy_has_the_hooks_of_the_original() -> None:
    model = _Net()
    before = dict(vars(model))
    copied = copy_model(model)
    copied.factor = 7.0
    assert _gradients(model) == [10.0, 2.0]
    # A method of the model is a method of the copy.
    assert _gradients(copied) == [14.0, 2.0]
    assert vars(model) == before
    assert vars(copied).keys() == before.keys()
    assert _gradients(deepcopy(model)) == [1.0, 1.0]


def test_a_frozen_parameter_keeps_its_hooks() -> None:
    model = _Net()
    model.line.weight.requires_grad_(False)
    copied = copy_model(model)
    assert not copied.line.weight.requires_grad
    copied.line.weight.requires_grad_(True)
    assert _gradients(copied)[0] == 10.0


def test_hooks_travel_to_other_processes() -> None:
    model = _Net()
    carry_hooks(model)
    require_sendable(model, what="The model")
    arrived = copy_model(pickle.loads(pickle.dumps(model)))
    assert _gradients(arrived) == [10.0, 2.0]
    # One that was made to travel is not hooked twice.
    assert _gradients(copy_model(model))[0] == 10.0


def test_hooks_that_cannot_travel_are_said() -> None:
    model = _Net()
    model.line.weight.register_hook(lambda gradient: gradient)  # type: ignore[no-untyped-call]
    carry_hooks(model)
    with pytest.raises(BadInputError, match=r"^The model cannot be sent to other processes \(.*lambda"):
        require_sendable(model, what="The model")


def test_a_given_module_is_trained_with_its_hooks() -> None:
    spec = DataSpec(
        channels=1, height=1, width=2, num_classes=3, class_names=("a", "b", "c"), image_dtype="uint8"
    )
    made = OwnModel(_Net(), Recipe())(spec)
    assert isinstance(made, _Net)
    assert _gradients(made) == [10.0, 2.0]
