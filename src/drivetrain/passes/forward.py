"""The precision in which a model runs."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device
from drivetrain.recipe.schema import Recipe

__all__ = ["Forward", "Precision", "choose_precision", "in_precision"]

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The compute type, and the type of weights and gradients; losses are always float32."""

    compute_dtype: torch.dtype
    device_type: str
    weight_dtype: torch.dtype = torch.float32

    @property
    def description(self) -> str:
        """The precision as `--precision` writes it, with the name of the compute type."""
        bits = [8 * dtype.itemsize for dtype in (self.compute_dtype, self.weight_dtype)]
        return f"{bits[0]}.{bits[1]} ({str(self.compute_dtype).removeprefix('torch.')})"

    def autocast(self) -> AbstractContextManager[object]:
        """A context that computes in this precision; it does nothing for float32."""
        if self.compute_dtype == torch.float32:
            return nullcontext()
        # Without the cache of casted weights: each weight is cast once per pass anyway, and cached tensors
        # would outlive the memory pool of a captured CUDA graph.
        return torch.autocast(self.device_type, dtype=self.compute_dtype, cache_enabled=False)


def choose_precision(recipe: Recipe, device: Device, *, of_stage: str | None = None) -> Precision:
    """The precision from `--precision`; `auto` is bfloat16 on accelerators that support it, else float32.

    `of_stage` replaces it for one stage. Call it before anything is computed: it also makes half precision
    safe on a CPU.
    """
    kind = device.torch_device.type
    device.set_half_partials(recipe.half_partials)
    named = asked = of_stage or recipe.precision
    if asked == "auto":
        asked = "32.32" if device.is_cpu or torch.bfloat16 not in device.usable_half_types() else "16.32"
    if asked == "32.32":
        return Precision(compute_dtype=torch.float32, device_type=kind)
    wanted: torch.dtype = getattr(torch, recipe.half_type)
    if wanted not in device.usable_half_types():
        raise BadInputError(
            f"--precision {named} with --half-type {recipe.half_type} is not supported by this "
            f"{kind} device; --precision 32.32 works."
        )
    device.prepare_half(wanted)
    weights = wanted if asked == "16.16" else torch.float32
    return Precision(compute_dtype=wanted, device_type=kind, weight_dtype=weights)


def in_precision(forward: Forward, precision: Precision) -> Forward:
    """The same function, computed in a precision."""
    if precision.compute_dtype == torch.float32:
        return forward

    def run(images: Tensor) -> Tensor:
        with precision.autocast():
            return forward(images)

    return run
