"""Copies or fakes of a model's tensors, with which its steps run without changing the model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from drivetrain.models.input_form import as_model_input

__all__ = ["StandIns", "attributes_kept", "copies", "fakes", "images_like", "is_cheap"]

# Fake tensors import torch's compiler, which takes 2 to 3 seconds. Up to this cost a real pass is faster.
_MAX_REAL_FLOPS = 5e9


class StandIns:
    """Runs modules with stand-ins for their parameters and buffers; steps must run within `mode`."""

    def __init__(self, convert: Callable[[Tensor], Tensor], *, mode: AbstractContextManager[Any]) -> None:
        self.mode = mode
        self._convert = convert
        self._found: dict[int, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """The stand-in of a tensor: always the same one, so that layers that share a weight still do."""
        if id(tensor) not in self._found:
            self._found[id(tensor)] = self._convert(tensor)
        return self._found[id(tensor)]

    def call(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls a module with stand-ins instead of its own tensors."""
        numbers = chain(module.named_parameters(), module.named_buffers())
        own = {name: self.of(tensor) for name, tensor in numbers}
        return functional_call(module, own, tuple(args), dict(kwargs))


@contextmanager
def attributes_kept(model: nn.Module) -> Iterator[None]:
    """Restores the attributes of all modules afterwards, and what their dictionaries, lists and sets hold.

    A layer may store something about each forward pass, such as a cache, which must not keep a stand-in.
    """
    before = {module: dict(vars(module)) for module in model.modules()}
    held = [
        (value, value.copy())
        for attributes in before.values()
        for value in attributes.values()
        if isinstance(value, dict | list | set)
    ]
    try:
        yield
    finally:
        for module, attributes in before.items():
            vars(module).clear()
            vars(module).update(attributes)
        for value, content in held:
            value.clear()
            value.extend(content) if isinstance(value, list) else value.update(content)


def copies() -> StandIns:
    """Stand-ins with real values."""
    return StandIns(lambda tensor: tensor.detach().clone(), mode=nullcontext())


def fakes() -> StandIns:
    """Stand-ins without values, which cost no memory and no time."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    return StandIns(lambda tensor: mode.from_tensor(tensor.detach()), mode=mode)


def images_like(model: nn.Module, shape: Sequence[int]) -> Tensor:
    """Images of zeros as the forward of the model gets them, of the type and on the device of its weights."""
    floats = [weight for weight in model.parameters() if weight.is_floating_point()]
    like = floats[0] if floats else torch.empty(())
    return as_model_input(model, torch.zeros(tuple(shape), dtype=like.dtype, device=like.device))


def is_cheap(model: nn.Module, shape: Sequence[int]) -> bool:
    """Whether a real pass is faster than a fake one; never true for a model without memory."""
    tensors = [*model.parameters(), *model.buffers()]
    most_flops = 2 * sum(tensor.numel() for tensor in tensors) * shape[0] * prod(shape[2:])
    return most_flops <= _MAX_REAL_FLOPS and all(tensor.device.type == "cpu" for tensor in tensors)
