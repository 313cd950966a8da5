"""Code that a graph cannot hold: kept whole inside of a module, refused with its line in the model itself."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.graph.node_kinds import inputs_kept_alive, may_change_inputs
from drivetrain.pipeline.graph.trace import trace_model


class _Model(nn.Module):
    def __init__(self, code: Callable[..., Any]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)
        self.code = code

    def forward(self, images: Tensor) -> Any:
        return self.code(self, self.conv(images))


class _Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 1, 1)
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        return torch.tanh(self.inner(self.first(images)))


def _reentrant(self: Any, inputs: Tensor) -> Any:
    return checkpoint(self.conv, inputs, use_reentrant=True)


def _not_reentrant(self: Any, inputs: Tensor) -> Any:
    return checkpoint(self.conv, inputs, use_reentrant=False)


def _asks_for_gradients(self: Any, inputs: Tensor) -> Tensor:
    return inputs * 2 if torch.is_grad_enabled() else inputs


def _asks_for_autocast(self: Any, inputs: Tensor) -> Tensor:
    return inputs.to(torch.get_autocast_dtype("cpu"))


def _saves_elsewhere(self: Any, inputs: Tensor) -> Any:
    with torch.autograd.graph.save_on_cpu():
        return self.conv(inputs)


def _chooses_kernels(self: Any, inputs: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return nn.functional.scaled_dot_product_attention(inputs, inputs, inputs)


def _casts_twice(self: Any, inputs: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return self.conv(inputs) + self.conv(inputs)


CODES: dict[str, tuple[Callable[..., Any], int, str]] = {
    "reentrant": (_reentrant, 1, "calls torch.utils.checkpoint; use --recomputation instead of it, or move"),
    "not reentrant": (_not_reentrant, 1, "calls torch.utils.checkpoint; use --recomputation instead of it"),
    "asks for gradients": (_asks_for_gradients, 1, "asks torch.is_grad_enabled"),
    "asks for autocast": (_asks_for_autocast, 1, "asks torch.get_autocast_dtype"),
    "saves elsewhere": (_saves_elsewhere, 2, "changes how tensors are saved for the backward pass"),
    "chooses kernels": (_chooses_kernels, 2, "changes the kernels of attention"),
    "casts twice": (_casts_twice, 2, "uses a weight a second time inside torch.autocast"),
}


@pytest.mark.parametrize("name", CODES)
def test_code_that_a_graph_cannot_hold_is_named_by_its_line(name: str) -> None:
    code, line, reason = CODES[name]
    patched = (torch.is_grad_enabled, torch.autocast.__init__, nn.Module.__setattr__)
    with pytest.raises(BadInputError, match=reason) as caught:
        trace_model(_Model(code))
    assert f"test_tracer.py line {code.__code__.co_firstlineno + line} " in str(caught.value)
    assert (torch.is_grad_enabled, torch.autocast.__init__, nn.Module.__setattr__) == patched
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("name", CODES)
def test_a_module_with_such_code_stays_whole(name: str) -> None:
    layers = trace_model(_Outer(_Model(CODES[name][0]))).layers
    assert [layer.name for layer in layers] == ["first", "inner", "tanh"]


def _draws_from_numpy(self: Any, inputs: Tensor) -> Tensor:
    return inputs * float(np.random.rand())


def _draws_from_python(self: Any, inputs: Tensor) -> Tensor:
    return inputs * random.random()


@pytest.mark.parametrize("code", [_draws_from_numpy, _draws_from_python])
def test_draws_outside_of_torch_are_seen(code: Callable[..., Any]) -> None:
    with pytest.raises(BadInputError, match="draws random numbers of its own"):
        trace_model(_Model(code))
    names = [layer.name for layer in trace_model(_Outer(_Model(code))).layers]
    assert names == ["first", "inner", "tanh"]


def _leaves_gradients_off(self: Any, inputs: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    return inputs * 2


def test_gradients_that_stay_off_are_refused_and_put_back() -> None:
    with pytest.raises(BadInputError, match="leaves gradients switched off when it returns"):
        trace_model(_Model(_leaves_gradients_off))
    assert torch.is_grad_enabled()


def test_the_first_argument_of_a_decorated_forward_has_its_name() -> None:
    class Decorated(_Model):
        @torch.no_grad()
        def forward(self, images: Tensor) -> Any:
            return super().forward(images)

    assert trace_model(Decorated(lambda _, inputs: inputs * 2)).input == "images"


def test_hooks_of_all_modules_are_refused() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.raises(BadInputError, match=r"^Hooks for all modules .* do not work with --stages"):
            trace_model(_Outer(nn.Tanh()))
    finally:
        handle.remove()
    assert trace_model(_Outer(nn.Tanh())).layers


def test_a_hook_of_a_user_may_change_tensors_and_one_of_torch_does_not() -> None:
    layers = {
        "plain": nn.Conv2d(1, 1, 1),
        "of torch": nn.utils.spectral_norm(nn.Conv2d(1, 1, 1)),
        "of a user": nn.Conv2d(1, 1, 1),
        "container": nn.Sequential(nn.Conv2d(1, 1, 1)),
    }
    for name in ("of a user", "container"):
        layers[name].register_forward_pre_hook(lambda _, inputs: None)
    found = {}
    for name, layer in layers.items():
        traced = trace_model(_Outer(layer))
        node = traced.nodes["inner"]
        found[name] = (
            may_change_inputs(node, module=layer),
            inputs_kept_alive(node, module=layer) == (traced.nodes["first"],),
        )
    assert found == {
        "plain": (False, False),
        "of torch": (False, False),
        "of a user": (True, True),
        "container": (True, True),
    }
