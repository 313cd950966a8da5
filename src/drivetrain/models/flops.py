"""Counts the multiply-adds of a forward pass by listening to the functions it calls."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


def _convolution_flops(_inputs: Tensor, weight: Tensor, outputs: Tensor) -> int:
    return 2 * outputs.numel() * weight[0].numel()


def _transposed_flops(inputs: Tensor, weight: Tensor, _outputs: Tensor) -> int:
    return 2 * inputs.numel() * weight[0].numel()


def _linear_flops(_inputs: Tensor, weight: Tensor, outputs: Tensor) -> int:
    return 2 * outputs.numel() * weight.shape[-1]


_FLOPS_OF: Mapping[Callable[..., Any], Callable[[Tensor, Tensor, Tensor], int]] = {
    functional.conv1d: _convolution_flops,
    functional.conv2d: _convolution_flops,
    functional.conv3d: _convolution_flops,
    functional.conv_transpose1d: _transposed_flops,
    functional.conv_transpose2d: _transposed_flops,
    functional.conv_transpose3d: _transposed_flops,
    functional.linear: _linear_flops,
}


class FlopCounter(TorchFunctionMode):
    """Adds 2 x multiply-adds of every convolution and linear layer called while it is entered.

    It sees functions, not modules, so that a model which calls `torch.nn.functional` itself is counted too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        named = dict(kwargs or {})
        outputs = func(*args, **named)
        if func in _FLOPS_OF:
            inputs, weight = (*args, *(named[word] for word in ("input", "weight") if word in named))[:2]
            self.flops += _FLOPS_OF[func](inputs, weight, outputs)
        return outputs
