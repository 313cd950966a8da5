"""The loss of a compiled Keras model, per sample, as the training program takes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSplits
from drivetrain.keras_fit.lowering import as_keras_output
from drivetrain.models.from_keras.package import import_keras

__all__ = ["KerasTask", "LossSpec", "keras_device", "loss_of"]

_MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpec:
    """A loss as it is sent to other processes: Keras's own by its configuration, a user's by what made it."""

    kind: Any
    config: Any = None
    function: Any = None
    factor: float = 1.0

    def build(self) -> Any:
        """The loss object of Keras."""
        keras = import_keras()
        if self.function is not None:
            return self.kind(self.function, **self.config)
        return (
            keras.losses.deserialize(self.config) if self.kind is None else self.kind.from_config(self.config)
        )


def loss_of(model: Any, *, is_weighted: bool) -> LossSpec:
    """The loss that a model was compiled with, after its build; refuses what has no value per sample."""
    compiled = model._compile_loss
    if compiled is None:
        raise BadInputError("The model was compiled without a loss; model.compile(loss=...) gives it one.")
    if len(compiled._flat_losses) != 1:
        raise BadInputError("Inside the scope a model is compiled with one loss; give one loss.")
    loss, factor = compiled._flat_losses[0].loss, compiled._flat_losses[0].loss_weights
    keras = import_keras()
    if type(loss).__call__ is not keras.losses.Loss.__call__:
        raise BadInputError(
            f"The loss {loss.name} has a __call__ of its own; define call(y_true, y_pred), which returns one "
            "value per sample."
        )
    _check_reduction(loss, is_weighted=is_weighted)
    factor = 1.0 if factor is None else float(factor)
    if not type(loss).__module__.startswith("keras."):
        return LossSpec(kind=type(loss), config=loss.get_config(), factor=factor)
    function = getattr(loss, "fn", None)
    if function is None or str(getattr(function, "__module__", "")).startswith("keras."):
        return LossSpec(kind=None, config=keras.losses.serialize(loss), factor=factor)
    return LossSpec(kind=type(loss), function=function, config={"name": loss.name}, factor=factor)


def _check_reduction(loss: Any, *, is_weighted: bool) -> None:
    usable = _MEANS[:1] if is_weighted else _MEANS
    if loss.reduction not in usable:
        why = " together with sample or class weights" if loss.reduction in _MEANS else ""
        raise BadInputError(
            f"The loss {loss.name} has reduction={loss.reduction!r}, which cannot be trained inside the "
            f"scope{why}; reduction='sum_over_batch_size' works."
        )


@contextmanager
def keras_device(device: torch.device) -> Iterator[None]:
    """Makes Keras create its tensors on a device inside the block."""
    with import_keras().device("gpu" if device.type == "cuda" else device.type):
        yield


class KerasTask:
    """Losses by Keras's own loss object; the outputs of a block of updates are kept for its metrics.

    Labels are rows of float32: the label itself, the weight of the sample, and where its output is kept.
    """

    def __init__(self, spec: LossSpec, *, label_shape: tuple[int, ...], device: torch.device) -> None:
        self._loss, self._factor = spec.build(), spec.factor
        self._label_shape, self._device = label_shape, device
        self._room = 0
        self.kept: Tensor | None = None

    @property
    def metric(self) -> str:
        return "score"

    def keep(self, room: int) -> bool:
        """Keeps the outputs of so many samples, 0 for none; returns whether their memory moves."""
        self._room = max(room, self._room) if room else 0
        moves = self.kept is not None and room >= len(self.kept)
        if moves:
            self.kept = None
        return moves

    def losses_and_scores(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted loss of each sample; metrics are computed from the outputs that are kept."""
        outputs = as_keras_output(logits)
        if self._room:
            self._keep(outputs.detach(), places=labels[:, -1].long())
        truth = labels[:, :-2].reshape(len(labels), *self._label_shape)
        losses = self._losses(truth, outputs) * (labels[:, -2] * self._factor)
        return losses, torch.zeros_like(losses.detach())

    def _losses(self, truth: Tensor, outputs: Tensor) -> Tensor:
        with keras_device(self._device):
            losses = self._loss.call(truth, outputs.float())
        if losses.dim() == 0 or len(losses) != len(truth):
            raise BadInputError(
                f"The loss {self._loss.name} returned the shape {tuple(losses.shape)} for {len(truth)} "
                "samples; it must return one value per sample, so that a batch can be split."
            )
        one_each: Tensor = losses.reshape(len(truth), -1).mean(1)
        return one_each

    def _keep(self, outputs: Tensor, *, places: Tensor) -> None:
        if self.kept is None:
            # One row more, for the outputs of padding.
            self.kept = outputs.new_zeros(self._room + 1, *outputs.shape[1:])
        self.kept.index_copy_(0, places, outputs.to(self.kept.dtype))

    def probabilities(self, logits: Tensor) -> Tensor:
        return as_keras_output(logits)

    def check_labels(self, data: DataSplits, *, output: torch.Size) -> None:
        """`label_fit` has checked the labels."""

    def check_output(self, shape: torch.Size, *, batch: int, num_classes: int, size: tuple[int, int]) -> None:
        """Keras has checked the output when it built the loss."""
