"""Keeps models away from a convolution whose backward pass corrupts memory on a CPU.

The fault is oneDNN's (github.com/uxlfoundation/oneDNN issue 6035; torch 2.13.0 contains it). For a 1x1
convolution with a stride and channels_last input, it gathers the pixels that the stride keeps in a workspace.
The weight gradient writes past the end of it if a pixel has fewer channels than a vector has floats. The
process then dies later, in any call, with SIGSEGV or "double free or corruption". In plain torch:

    layer = nn.Conv2d(8, 8, 1, stride=2)
    images = torch.randn(4, 8, 64, 64).contiguous(memory_format=torch.channels_last)
    layer(images).sum().backward()

A convolution of the kept pixels with stride 1 computes the same, without the workspace.
"""

import os
from collections.abc import Callable, Mapping
from functools import cache
from traceback import extract_stack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from drivetrain.core.errors import BadInputError

__all__ = ["NarrowCalls", "install_narrow_convolutions"]

# The floats in a vector of AVX-512, which is the widest; with AVX2 only fewer than 8 channels are faulty.
_VECTOR = 16


class NarrowConv2d(nn.Conv2d):
    """A 1x1 convolution that drops pixels before it convolves, instead of striding over them."""

    def forward(self, inputs: Tensor) -> Tensor:
        down, right = self.stride
        return functional.conv2d(
            inputs[..., ::down, ::right], self.weight, self.bias, stride=1, groups=self.groups
        )


def install_narrow_convolutions(model: nn.Module) -> int:
    """Changes the class of every layer that oneDNN would compute wrongly; returns their number.

    The layers stay the same objects, with their attributes and hooks. A layer with its own `forward` is not
    changed; `NarrowCalls` finds it if it is faulty.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d) and _is_faulty_layer(layer)]
    for layer in layers:
        layer.__class__ = _narrow(type(layer))  # type: ignore[arg-type]
    return len(layers)


def _is_faulty_layer(layer: nn.Conv2d) -> bool:
    kind = type(layer)
    is_plain = kind.forward is nn.Conv2d.forward and kind._conv_forward is nn.Conv2d._conv_forward
    padding = (0, 0) if layer.padding == "valid" else layer.padding
    return is_plain and _is_faulty(
        channels=layer.in_channels, kernel=layer.kernel_size, stride=layer.stride, padding=padding
    )


def _is_faulty(*, channels: int, kernel: Any, stride: Any, padding: Any) -> bool:
    is_pointwise = set(kernel) == {1} and _numbers(padding) == {0}
    return is_pointwise and _numbers(stride) != {1} and channels < _VECTOR


def _numbers(value: Any) -> set[Any]:
    return set(value) if isinstance(value, tuple | list) else {value}


@cache
def _narrow(kind: Any) -> type[nn.Conv2d]:
    if kind is nn.Conv2d:
        return NarrowConv2d

    def reduce(self: Any, _protocol: int) -> tuple[Any, ...]:
        # No other process could find a class that was made here.
        return _new_narrow, (kind,), vars(self)

    members = {"forward": NarrowConv2d.forward, "__reduce_ex__": reduce, "__module__": kind.__module__}
    made: type[nn.Conv2d] = type(kind.__name__, (kind,), members)
    return made


def _new_narrow(kind: Any) -> Any:
    made = _narrow(kind)
    return made.__new__(made)


class NarrowCalls(TorchFunctionMode):
    """Refuses faulty convolutions that are called as functions while it is active.

    It remembers the first, and `check` raises: an error inside `forward` might be caught there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._found = ""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        named = dict(kwargs or {})
        if func is functional.conv2d and not self._found and _is_faulty_call(*args, **named):
            self._found = _caller()
        return func(*args, **named)

    def check(self) -> None:
        """Raises if a faulty convolution was called."""
        if self._found:
            raise BadInputError(
                f"--model: {self._found} calls conv2d with a 1x1 kernel, a stride and fewer than {_VECTOR} "
                "channels, whose gradient corrupts memory on a CPU (a fault of oneDNN); conv2d with stride 1 "
                "of x[..., ::stride, ::stride] computes the same and works."
            )


def _is_faulty_call(
    input: Tensor,  # noqa: ARG001, the arguments of torch.nn.functional.conv2d under their names
    weight: Tensor,
    bias: Tensor | None = None,  # noqa: ARG001
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,  # noqa: ARG001
    groups: int = 1,
) -> bool:
    padding = 0 if padding == "valid" else padding
    return _is_faulty(
        channels=weight.shape[1] * groups, kernel=tuple(weight.shape[2:]), stride=stride, padding=padding
    )


def _caller() -> str:
    """'FILE line N' of the innermost frame outside torch and this file."""
    hidden = (torch.__file__.rpartition("__init__")[0], __file__)
    frames = [frame for frame in extract_stack() if not frame.filename.startswith(hidden)]
    return f"{os.path.relpath(frames[-1].filename)} line {frames[-1].lineno}" if frames else "its code"
