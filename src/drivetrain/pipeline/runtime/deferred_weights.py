"""Splits backward passes for the zero-bubble schedule: input gradients now, weight gradients later.

Inside `deferring`, convolutions, transposed convolutions and linear layers whose weight is a parameter
compute only the gradient of their input in the backward pass, and put the rest into a queue. All other layers
compute their whole gradient in the backward pass, which is correct but fills less idle time.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from drivetrain.pipeline.runtime.deferred_layers import Settings, convolve, multiply

__all__ = ["WeightQueue", "deferring"]

_Handler = Callable[..., Tensor | None]


@dataclass(slots=True, eq=False)
class _Entry:
    """The deferred gradients of one use of a layer: the function and the parameters."""

    compute: Callable[[], tuple[Tensor, ...]]
    parameters: tuple[nn.Parameter, ...]
    forward_pass: int


@dataclass(slots=True, eq=False)
class WeightQueue:
    """The deferred weight gradients of one micro-batch in one stage.

    Until it runs, the queue holds the inputs of layers and the gradients of their outputs; nobody may write
    to that memory before.
    """

    _entries: deque[_Entry] = field(default_factory=deque)
    _forward_passes: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def begin_forward(self) -> int:
        """Starts a new forward pass, whose gradients are summed before they are accumulated."""
        self._forward_passes += 1
        return self._forward_passes

    def put(
        self,
        compute: Callable[[], tuple[Tensor, ...]],
        parameters: tuple[nn.Parameter, ...],
        *,
        forward_pass: int,
    ) -> None:
        """Defers `compute`, which returns the gradients of `parameters`."""
        self._entries.append(_Entry(compute, parameters, forward_pass))

    # Otherwise autograd would record every addition, and a gradient would keep the history of all before it.
    @torch.no_grad()
    def run(self) -> None:
        """Accumulates all deferred gradients into `grad`, in place, and empties the queue.

        A weight used several times gets the sum of its gradients at once, as in a whole backward pass; adding
        them one by one would round differently.
        """
        uses = Counter(key for entry in self._entries for key in _keys(entry))
        sums: dict[tuple[int, int], Tensor] = {}
        while self._entries:
            entry = self._entries.popleft()
            gradients = entry.compute()
            for key, parameter, gradient in zip(_keys(entry), entry.parameters, gradients, strict=True):
                gradient = gradient.to(parameter.dtype)
                sums[key] = sums[key] + gradient if key in sums else gradient
                uses[key] -= 1
                if not uses[key]:
                    _accumulate(parameter, sums.pop(key))


def _keys(entry: _Entry) -> list[tuple[int, int]]:
    return [(entry.forward_pass, id(parameter)) for parameter in entry.parameters]


def _accumulate(parameter: nn.Parameter, gradient: Tensor) -> None:
    """Accumulates a gradient and calls the post-accumulate hooks, as autograd does."""
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad.add_(gradient)
    for hook in list((getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values()):
        hook(parameter)


@contextmanager
def deferring(queue: WeightQueue) -> Iterator[None]:
    """Makes layers that run inside defer their weight gradients into `queue`.

    Call backward without `inputs=`: autograd would skip layers that lead to none of the named tensors, and
    their weight gradients would be lost.
    """
    with _Deferral(queue):
        yield


class _Deferral(TorchFunctionMode):
    """Replaces known functions by their deferred versions; torch.compile sees the ordinary ones."""

    def __init__(self, queue: WeightQueue) -> None:
        super().__init__()
        self._queue = queue
        self._forward_pass = queue.begin_forward()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        if handler is not None and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            output = handler(self._put_off, *args, **kwargs)
            if output is not None:
                return output
        return func(*args, **kwargs)

    def _put_off(
        self, compute: Callable[[], tuple[Tensor, ...]], parameters: tuple[nn.Parameter, ...]
    ) -> None:
        self._queue.put(compute, parameters, forward_pass=self._forward_pass)


def _convolution(dimensions: int) -> _Handler:
    """A handler with the arguments of torch.conv1d, conv2d and conv3d."""

    def run(
        put_off: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor | None:
        if isinstance(padding, str):
            return None
        settings = Settings.of(dimensions, stride, padding, dilation, output_padding=None, groups=groups)
        return convolve(input, weight, bias, settings=settings, put_off=put_off)

    return run


def _transposed_convolution(dimensions: int) -> _Handler:
    """A handler with the arguments of torch.conv_transpose1d, 2d and 3d (another order)."""

    def run(
        put_off: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor | None:
        settings = Settings.of(
            dimensions, stride, padding, dilation, output_padding=output_padding, groups=groups
        )
        return convolve(input, weight, bias, settings=settings, put_off=put_off)

    return run


def _linear(put_off: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    return multiply(input, weight, bias, put_off=put_off)


_HANDLERS: dict[Any, _Handler] = {
    torch.conv1d: _convolution(1),
    torch.conv2d: _convolution(2),
    torch.conv3d: _convolution(3),
    torch.conv_transpose1d: _transposed_convolution(1),
    torch.conv_transpose2d: _transposed_convolution(2),
    torch.conv_transpose3d: _transposed_convolution(3),
    nn.functional.linear: _linear,
}
