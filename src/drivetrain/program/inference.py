"""A trained model as inference runs it: folded, in a precision, compiled with its weights as constants."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.program.fold_batch_norm import fold_batch_norm
from drivetrain.program.forward import Forward, Precision, in_precision

__all__ = ["build_inference"]


def build_inference(
    model: nn.Module, *, precision: Precision, compiles: bool = False, folds: bool = True
) -> Forward:
    """Prepared images to logits; the weights are those of now, a later change of the model does not count.

    With `compiles`, the first call of every shape takes as long as a compilation. The output of a compiled
    model on an accelerator is overwritten by the next call.
    """
    ready = fold_batch_norm(model).model if folds else model.eval()
    ready = ready.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    forward = in_precision(ready, precision)
    if not compiles:
        return forward
    options: dict[str, str | int | bool | Callable[..., Any]] = {
        "freezing": True,
        "triton.cudagraphs": precision.device_type == "cuda",
    }
    compiled: Forward = torch.compile(forward, dynamic=False, options=options)
    return _without_gradient(compiled)


def _without_gradient(forward: Forward) -> Callable[[Tensor], Tensor]:
    """Weights become constants only where nobody can ask for their gradient."""

    @wraps(forward)
    def run(images: Tensor) -> Tensor:
        with torch.no_grad():
            return forward(images)

    return run
