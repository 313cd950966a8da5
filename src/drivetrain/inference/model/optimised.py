"""Builds the forward function for inference: in a precision, optionally compiled with constant weights."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.core.progress import shown
from drivetrain.devices.compilation import keep_compiled_code, repaired_once
from drivetrain.inference.model.fused_layers import fuse_layers
from drivetrain.models.memory_format import in_memory_format, memory_format_of
from drivetrain.passes.forward import Forward, Precision, in_precision

__all__ = ["build_inference", "declined_recordings"]


def build_inference(
    model: nn.Module,
    *,
    precision: Precision,
    compiles: bool = False,
    fuses: bool = True,
) -> Forward:
    """A function from preprocessed images to logits, for a trained model with folded batch norms.

    With `compiles`, the first call of each shape compiles the model. The output of a compiled model on CUDA
    is overwritten by the next call. With `fuses`, layers of a compiled 16-bit model on CUDA are replaced by
    faster ones (fused_layers.py), which need channels_last.
    """
    ready = model.eval()
    is_channels_last = memory_format_of(model) == torch.channels_last
    is_half = precision.compute_dtype != torch.float32
    if fuses and compiles and is_channels_last and is_half and precision.device_type == "cuda":
        ready = fuse_layers(ready, dtype=precision.compute_dtype)
    ready = in_memory_format(ready)
    forward = in_precision(ready, precision)
    if not compiles:
        return forward
    options: dict[str, str | int | bool | Callable[..., Any]] = {
        "triton.cudagraphs": precision.device_type == "cuda",
    }
    compiled: Forward = torch.compile(forward, dynamic=False, options=options)
    return _with_constant_weights(compiled)


def declined_recordings() -> int:
    """How often torch.compile skipped CUDA graphs in this process, because a model did not allow them."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cudagraph_skips"])


def _with_constant_weights(forward: Forward) -> Callable[[Tensor], Tensor]:
    """Compiles with `freezing`: weights become constants, in the memory layout that convolutions prefer.

    Freezing requires that gradients are off. It is set in the global configuration during each compilation:
    as an option of `torch.compile` it would reach only the backend, but CUDA graph capture reads the global
    one.
    """
    compiled_shapes: set[torch.Size] = set()

    @wraps(forward)
    def run(images: Tensor) -> Tensor:
        with torch.no_grad():
            if images.shape in compiled_shapes:
                return forward(images)
            keep_compiled_code()
            with shown("compiling the model"), _freezing():
                logits = repaired_once(partial(forward, images))
            compiled_shapes.add(images.shape)
            return logits

    return run


def _freezing() -> AbstractContextManager[object]:
    # Takes seconds to import, so it is imported only when something is compiled.
    from torch._inductor import config

    context: AbstractContextManager[object] = config.patch(freezing=True)  # type: ignore[no-untyped-call, unused-ignore]
    return context
