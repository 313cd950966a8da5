"""How a model is run: in the precision of the recipe, and compiled where it asks for that."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from drivetrain.cluster.devices import Device
from drivetrain.errors import BadInputError
from drivetrain.recipe.schema import Recipe

__all__ = ["Forward", "Precision", "build_forward", "choose_precision", "in_precision"]

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The type products are computed in; weights, updates and losses are float32 in any case."""

    compute_dtype: torch.dtype
    device_type: str

    @property
    def description(self) -> str:
        """As `--precision` writes it, with the type's name."""
        bits = "32" if self.compute_dtype == torch.float32 else "16"
        return f"{bits}.32 ({str(self.compute_dtype).removeprefix('torch.')})"

    def autocast(self) -> AbstractContextManager[object]:
        """Inside, products are computed in the precision; nothing changes where that is float32."""
        if self.compute_dtype == torch.float32:
            return nullcontext()
        # Weights change between updates but are cast once per pass anyway; the cache would outlive a capture.
        return torch.autocast(self.device_type, dtype=self.compute_dtype, cache_enabled=False)


def choose_precision(recipe: Recipe, device: Device, *, of_stage: str | None = None) -> Precision:
    """What `--precision` says; `auto` is bfloat16 on accelerators that have it, float32 elsewhere.

    `of_stage` is what one stage says instead. Called before anything is computed, it also makes half
    precision safe on a CPU.
    """
    kind = device.torch_device.type
    named = asked = of_stage or recipe.precision
    if asked == "auto":
        asked = "32.32" if device.is_cpu or torch.bfloat16 not in device.usable_half_types() else "16.32"
    if asked == "32.32":
        return Precision(compute_dtype=torch.float32, device_type=kind)
    wanted: torch.dtype = getattr(torch, recipe.half_type)
    if wanted not in device.usable_half_types():
        raise BadInputError(
            f"--precision {named} with --half-type {recipe.half_type} does not run on this "
            f"{kind} device; --precision 32.32 works."
        )
    device.prepare_half(wanted)
    return Precision(compute_dtype=wanted, device_type=kind)


def in_precision(forward: Forward, precision: Precision) -> Forward:
    """The same computation in a precision."""
    if precision.compute_dtype == torch.float32:
        return forward

    def run(images: Tensor) -> Tensor:
        with precision.autocast():
            return forward(images)

    return run


def build_forward(recipe: Recipe, model: nn.Module, *, precision: Precision) -> Forward:
    """The model as training runs it."""
    forward = in_precision(model, precision)
    if recipe.compile == "off":
        return forward
    compiled: Forward = torch.compile(forward, dynamic=False)
    return compiled
