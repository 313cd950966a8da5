"""A backward pass in two parts: the gradient of the inputs now, that of the weights when there is time.

Inside `deferring`, convolutions, transposed convolutions and linear layers whose weight is a parameter
compute only the gradient of their input in the backward pass, and put the rest into a queue. Every other
layer has its whole gradient in the backward pass: correct, only less deferred.
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
    """One use of a layer: how its gradients are computed, and whose they are."""

    compute: Callable[[], tuple[Tensor, ...]]
    parameters: tuple[nn.Parameter, ...]
    forward_pass: int


@dataclass(slots=True, eq=False)
class WeightQueue:
    """The weight gradients that the backward pass of one micro-batch through one stage has put off.

    It holds the layers' inputs and the gradients of their outputs until it is run, so their memory must
    not be written to before.
    """

    _entries: deque[_Entry] = field(default_factory=deque)
    _forward_passes: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def begin_forward(self) -> int:
        """The number of another forward pass, whose gradients are added up before they are added."""
        self._forward_passes += 1
        return self._forward_passes

    def put(
        self,
        compute: Callable[[], tuple[Tensor, ...]],
        parameters: tuple[nn.Parameter, ...],
        *,
        forward_pass: int,
    ) -> None:
        """Puts off what `compute` gives: the gradients of `parameters`."""
        self._entries.append(_Entry(compute, parameters, forward_pass))

    # Without this every gradient would drag along the history of all the ones it was added to.
    @torch.no_grad()
    def run(self) -> None:
        """Adds every gradient that was put off to its parameter's `grad`, in place, and forgets it.

        A weight that several layers share is added to once, by the sum, as a whole backward pass would do.
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
    """What autograd does at the end of a backward pass, and whom it tells."""
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad.add_(gradient)
    for hook in list((getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values()):
        hook(parameter)


@contextmanager
def deferring(queue: WeightQueue) -> Iterator[None]:
    """Layers that run inside put their weights' gradients off into `queue` when they are run backwards.

    The backward pass must not name its `inputs`: autograd would leave out layers that lead to none.
    """
    with _Deferral(queue):
        yield


class _Deferral(TorchFunctionMode):
    """Hands the known layers over to their deferred versions; a compiler sees the ordinary ones."""

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
    """The arguments of torch.conv1d and its like."""

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
    """The arguments of torch.conv_transpose1d and its like."""

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
