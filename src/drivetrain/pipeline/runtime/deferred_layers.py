"""Convolutions and linear layers that defer their weight gradients to a later call.

They call the same kernels as torch's own layers, so their gradients are bit-identical.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["PutOff", "Settings", "convolve", "multiply"]

# Takes a function that computes gradients, and the parameters they belong to.
PutOff = Callable[[Callable[[], tuple[Tensor, ...]], tuple[nn.Parameter, ...]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a convolution, one entry per spatial dimension."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    @classmethod
    def of(
        cls, dimensions: int, stride: Any, padding: Any, dilation: Any, *, output_padding: Any, groups: int
    ) -> "Settings":
        """From the arguments of torch, which may be single numbers; `output_padding` None: not transposed."""
        return cls(
            stride=_for_each(stride, dimensions),
            padding=_for_each(padding, dimensions),
            dilation=_for_each(dilation, dimensions),
            transposed=output_padding is not None,
            output_padding=_for_each(output_padding or 0, dimensions),
            groups=groups,
        )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The settings as positional arguments of torch.convolution."""
        return (
            list(self.stride),
            list(self.padding),
            list(self.dilation),
            self.transposed,
            list(self.output_padding),
            self.groups,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    """Weight and bias in the compute type, and the parameters that need a gradient."""

    weight: Tensor
    bias: Tensor | None
    trained: tuple[Tensor, ...]

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> "_Weights":
        return cls(
            weight=_cast(weight.detach()),
            bias=None if bias is None else _cast(bias.detach()),
            trained=(weight,) if bias is None or not bias.requires_grad else (weight, bias),
        )


def convolve(
    inputs: Tensor, weight: Tensor, bias: Tensor | None, *, settings: Settings, put_off: PutOff
) -> Tensor | None:
    """A convolution that defers its weight gradients; None if it cannot."""
    if inputs.dim() != len(settings.stride) + 2 or not _is_deferrable(weight, bias):
        return None
    weights = _Weights.of(weight, bias)
    outputs: Tensor = _Convolution.apply(_cast(inputs), _anchor(inputs), weights, settings, put_off)  # type: ignore[no-untyped-call]
    return outputs


def multiply(inputs: Tensor, weight: Tensor, bias: Tensor | None, *, put_off: PutOff) -> Tensor | None:
    """A linear layer that defers its weight gradients; None if it cannot."""
    if inputs.dim() < 2 or weight.dim() != 2 or not inputs.is_contiguous():
        return None
    if not _is_deferrable(weight, bias):
        return None
    weights = _Weights.of(weight, bias)
    outputs: Tensor = _Linear.apply(_cast(inputs), _anchor(inputs), weights, put_off)  # type: ignore[no-untyped-call]
    return outputs


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        _anchor: Tensor | None,
        weights: "_Weights",
        settings: Settings,
        put_off: PutOff,
    ) -> Tensor:
        ctx.save_for_backward(inputs, weights.weight)
        ctx.settings, ctx.put_off, ctx.parameters = settings, put_off, weights.trained
        return torch.convolution(inputs, weights.weight, weights.bias, *settings.arguments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        # Detached, or the queue would keep the autograd graph alive after this pass.
        arguments = (output_gradient.detach(), inputs.detach(), weight)
        bias_sizes = [output_gradient.shape[1]] if len(ctx.parameters) == 2 else None
        fixed = (bias_sizes, *ctx.settings.arguments)

        def weight_gradients() -> tuple[Tensor, ...]:
            wanted = [False, True, bias_sizes is not None]
            gradients = torch.ops.aten.convolution_backward(*arguments, *fixed, wanted)
            return tuple(gradient for gradient in gradients if gradient is not None)

        ctx.put_off(weight_gradients, ctx.parameters)
        input_gradient = None
        if ctx.needs_input_grad[0]:
            wanted = [True, False, False]
            input_gradient = torch.ops.aten.convolution_backward(*arguments, *fixed, wanted)[0]
        return input_gradient, None, None, None, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, _anchor: Tensor | None, weights: "_Weights", put_off: PutOff
    ) -> Tensor:
        ctx.save_for_backward(inputs, weights.weight)
        ctx.put_off, ctx.parameters = put_off, weights.trained
        return nn.functional.linear(inputs, weights.weight, weights.bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        rows = inputs.detach().flatten(0, -2)
        row_gradients = output_gradient.detach().flatten(0, -2)
        has_bias = len(ctx.parameters) == 2

        def weight_gradients() -> tuple[Tensor, ...]:
            weight_gradient = row_gradients.t().mm(rows)
            return (weight_gradient, row_gradients.sum(0)) if has_bias else (weight_gradient,)

        ctx.put_off(weight_gradients, ctx.parameters)
        input_gradient = None
        if ctx.needs_input_grad[0]:
            input_gradient = row_gradients.mm(weight).view(inputs.shape)
        return input_gradient, None, None, None


def _is_deferrable(weight: Tensor, bias: Tensor | None) -> bool:
    """Whether weight and bias are plain parameters: hooks or derived weights need their gradients at once."""
    if not weight.requires_grad or not weight.is_floating_point():
        return False
    trained = [weight] if bias is None or not bias.requires_grad else [weight, bias]
    return all(
        isinstance(part, nn.Parameter) and part.is_leaf and not part._backward_hooks for part in trained
    )


def _anchor(inputs: Tensor) -> Tensor | None:
    """A dummy that makes autograd run the backward pass of a layer whose inputs need no gradient.

    The parameters themselves would do, but their post-accumulate hooks would then fire before their deferred
    gradients exist.
    """
    return None if inputs.requires_grad else inputs.new_empty(0).requires_grad_()


def _cast(tensor: Tensor) -> Tensor:
    """Casts to the type of autocast if it is on, as autocast does for torch's own layers."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


def _for_each(value: Any, dimensions: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dimensions if len(values) == 1 else values
