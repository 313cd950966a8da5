"""A trained model as inference runs it: in a precision, compiled with its weights as constants."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.devices.compilation import keep_compiled_code, repaired_once
from drivetrain.inference.model.fused_layers import fuse_layers
from drivetrain.passes.forward import Forward, Precision, in_precision

__all__ = ["build_inference", "declined_recordings"]


def build_inference(
    model: nn.Module,
    *,
    precision: Precision,
    compiles: bool = False,
    fuses: bool = True,
) -> Forward:
    """Prepared images to logits, by a finished model in evaluation mode that `fold_batch_norm.py` has folded.

    With `compiles`, the first call of every shape takes as long as a compilation. The output of a compiled
    model on an accelerator is overwritten by the next call. With `fuses`, layers of a compiled 16-bit model
    on a CUDA device are put into the form that is fastest there.
    """
    ready = model.eval()
    if fuses and compiles and precision.device_type == "cuda" and precision.compute_dtype != torch.float32:
        ready = fuse_layers(ready, dtype=precision.compute_dtype)
    ready = ready.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    forward = in_precision(ready, precision)
    if not compiles:
        return forward
    options: dict[str, str | int | bool | Callable[..., Any]] = {
        "triton.cudagraphs": precision.device_type == "cuda",
    }
    compiled: Forward = torch.compile(forward, dynamic=False, options=options)
    return _with_constant_weights(compiled)


def declined_recordings() -> int:
    """How often the compiler has found in this process that a model cannot be recorded and replayed."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cudagraph_skips"])


def _with_constant_weights(forward: Forward) -> Callable[[Tensor], Tensor]:
    """Weights become constants, packed once as convolutions like them, where nobody can ask for gradients.

    As an option of `torch.compile` that would reach its backend alone; what records the model asks the
    process's settings, whenever there is something to compile.
    """
    compiled_shapes: set[torch.Size] = set()

    @wraps(forward)
    def run(images: Tensor) -> Tensor:
        with torch.no_grad():
            if images.shape in compiled_shapes:
                return forward(images)
            keep_compiled_code()
            with _freezing():
                logits = repaired_once(partial(forward, images))
            compiled_shapes.add(images.shape)
            return logits

    return run


def _freezing() -> AbstractContextManager[object]:
    # Takes seconds to import, which only those who compile should wait for.
    from torch._inductor import config

    context: AbstractContextManager[object] = config.patch(freezing=True)  # type: ignore[no-untyped-call, unused-ignore]
    return context
