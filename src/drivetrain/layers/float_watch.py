"""`--fp-exceptions`: stops the training at the first value that is not finite, and names where it arose.

The output of every module is checked in the forward pass, its gradient in the backward pass, the gradients of
weights before they are used, and weights and running statistics after the update. A CPU checks each tensor at
once. An accelerator keeps a flag per tensor; the host reads them all before the weight update and once after.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from drivetrain.core.errors import RunFailedError
from drivetrain.layers.context import UpdateContext
from drivetrain.optim.flat_parameters import FlatParameters

__all__ = ["CAPTURE_OBSTACLE", "FloatWatch"]

CAPTURE_OBSTACLE = "--fp-exceptions checks every layer in every update"
# A whole batch of bad samples would bury the rest of the error.
_MOST_SAMPLES = 8


@dataclass(frozen=True, slots=True)
class _Look:
    """A checked tensor: its module, its samples and the result of the check, on the device."""

    subject: str
    direction: str
    slots: Tensor
    bad_rows: Tensor
    has_nan: Tensor


class FloatWatch:
    """Checks modules in training; `samples_of` maps positions in an update to samples.

    Without `sees_gradients` only forward passes are checked: with dynamic loss scaling gradients may
    overflow.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        *,
        context: UpdateContext,
        parameters: FlatParameters,
        samples_of: Callable[[int], NDArray[np.int64]],
        sees_gradients: bool = True,
    ) -> None:
        self._context, self._parameters, self._samples_of = context, parameters, samples_of
        self._sees_gradients = sees_gradients
        self._at_once = context.update.device.type == "cpu"
        self._looks: list[_Look] = []
        for subject, module in modules.items():
            module.register_forward_hook(partial(self._see_outputs, subject))

    def finish_update(self) -> None:
        """Raises what was found in this update, before the weights change; checks their gradients last."""
        looks, self._looks = self._looks, []
        if looks:
            found = torch.stack([look.bad_rows.any() for look in looks]).tolist()
            for look, is_bad in zip(looks, found, strict=True):
                if is_bad:
                    self._refuse(look)
        if self._sees_gradients and not bool(torch.isfinite(self._parameters.gradients).all()):
            self._refuse_gradient()

    @torch.no_grad()
    def finish_move(self, model: nn.Module) -> None:
        """Checks weights and statistics after they were updated."""
        moved = dict(self._parameters.named_views(self._parameters.values))
        here = self._parameters.values.device
        for name, kept in model.named_buffers():
            if kept.is_floating_point() and kept.device == here:
                moved[name] = kept
        if not moved:
            return
        are_finite = torch.stack([torch.isfinite(tensor).all() for tensor in moved.values()]).tolist()
        for (name, tensor), is_finite in zip(moved.items(), are_finite, strict=True):
            if not is_finite:
                raise RunFailedError(
                    f"{name} became {_word(tensor)} in update {self._number()}, although its gradients were "
                    "finite; no checkpoint of it is written."
                )

    def _number(self) -> int:
        """The current update, counted from 1 as in all output for people."""
        return int(self._context.update) + 1

    def _see_outputs(self, subject: str, module: nn.Module, _inputs: Any, outputs: Any) -> None:
        if not module.training:
            return
        slots = self._context.slots
        for output in tree_leaves(outputs):
            if not isinstance(output, Tensor) or not output.is_floating_point():
                continue
            self._look_at(output, subject=f"{subject} returned", direction="forward", slots=slots)
            if self._sees_gradients and output.requires_grad:
                output.register_hook(partial(self._see_gradient, subject, slots))  # type: ignore[no-untyped-call]

    def _see_gradient(self, subject: str, slots: Tensor, gradient: Tensor) -> None:
        subject = f"the gradient of the output of {subject} became"
        self._look_at(gradient, subject=subject, direction="backward", slots=slots)

    @torch.no_grad()
    def _look_at(self, tensor: Tensor, *, subject: str, direction: str, slots: Tensor) -> None:
        is_finite = torch.isfinite(tensor)
        if self._at_once and bool(is_finite.all()):
            return
        has_samples = tensor.dim() > 0 and len(tensor) == len(slots)
        rows = is_finite.flatten(1).all(1) if has_samples and tensor.dim() > 1 else is_finite.view(-1)
        if not has_samples:
            slots, rows = slots[:0], is_finite.all().view(1)
        look = _Look(subject, direction, slots, ~rows, torch.isnan(tensor).any())
        if self._at_once:
            self._refuse(look)
        self._looks.append(look)

    def _refuse(self, look: _Look) -> None:
        what = "nan" if bool(look.has_nan) else "inf"
        samples = self._samples(look)
        raise RunFailedError(
            f"{look.subject} {what} in the {look.direction} pass of update {self._number()}{samples}; the "
            "weights were not changed."
        )

    def _samples(self, look: _Look) -> str:
        if not len(look.slots):
            return ""
        places = look.slots[look.bad_rows].cpu().numpy()
        samples = [
            str(sample) for sample in self._samples_of(int(self._context.update))[places] if sample >= 0
        ]
        if not samples:
            return ""
        more = len(samples) - _MOST_SAMPLES
        listed = ", ".join(samples[:_MOST_SAMPLES]) + (f" and {more} more" if more > 0 else "")
        return f", sample{'s' if len(samples) > 1 else ''} {listed}"

    def _refuse_gradient(self) -> None:
        for name, gradient in self._parameters.named_views(self._parameters.gradients):
            if not bool(torch.isfinite(gradient).all()):
                raise RunFailedError(
                    f"the gradient of {name} became {_word(gradient)} in the backward pass of update "
                    f"{self._number()}; the weights were not changed."
                )


def _word(tensor: Tensor) -> str:
    return "nan" if bool(torch.isnan(tensor).any()) else "inf"
