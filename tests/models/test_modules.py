"""Replaced layers of any model."""

from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.models.modules import hooks_of, replace_modules


def _tripled(_: nn.Module, inputs: Any, __: Any) -> tuple[Tensor]:
    return (inputs[0] * 3,)


def test_a_new_layer_takes_over_the_hooks_of_the_old_one() -> None:
    model = nn.Sequential(nn.Identity(), nn.ReLU())
    calls: list[type[nn.Module]] = []
    model[0].register_forward_pre_hook(lambda one, inputs: calls.append(type(one)))
    model[0].register_forward_hook(lambda _, inputs, named, output: output * 2, with_kwargs=True)
    handle = model[0].register_full_backward_hook(_tripled)
    replace_modules(model, lambda name, _: nn.Tanh() if name == "0" else None)
    images = torch.ones(1, requires_grad=True)
    output = model(images)
    output.sum().backward()
    assert images.grad is not None
    assert calls == [nn.Tanh]
    assert len(hooks_of(model[0])) == 3
    plain = torch.tanh(torch.ones(1))
    assert torch.equal(output, plain * 2)
    assert torch.allclose(images.grad, 3 * 2 * (1 - plain.square()))
    handle.remove()
    assert len(hooks_of(model[0])) == 2
