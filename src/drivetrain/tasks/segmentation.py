"""Segmentation: cross-entropy over pixels plus soft Dice."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSplits
from drivetrain.tasks.segmentation_loss import (
    BinaryLoss,
    LossShares,
    ManyClassLoss,
    counted_pixels,
    pixel_factors,
)
from drivetrain.tasks.task import at_least_float32


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentationTask:
    """Losses and scores per sample, so that the sum is the same however a batch is split.

    Labels are (samples, height, width, channels) in uint8: the class of each pixel and, in an optional second
    channel, the code of its border weight. The weights of pixels are normalised within each sample. With
    `ignores`, pixels labelled `IGNORED` count neither in the cross-entropy nor in the soft Dice; a sample
    without any other pixel has the loss 0.
    """

    num_classes: int
    loss: Literal["softmax", "sigmoid"] = "softmax"
    cross_entropy_weight: float = 1.0
    dice_weight: float = 1.0
    class_weights: Tensor | None = None
    border_weight: float = 0.0
    ignores: bool = False

    @property
    def metric(self) -> str:
        return "dice"

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each sample, in float32 or wider."""
        return self.losses_and_class_dice(logits, labels)[0]

    def losses_and_scores(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and soft Dice of each sample; the score has no gradient."""
        losses, dice = self.losses_and_class_dice(logits, labels)
        return losses, dice.mean(1)

    def losses_and_class_dice(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each sample, and the soft Dice of each of its classes, which has no gradient."""
        classes = labels[..., 0].flatten(1)
        factors = pixel_factors(
            classes,
            labels[..., 1].flatten(1) if labels.shape[3] > 1 else None,
            class_weights=self.class_weights,
            border_weight=self.border_weight,
            counted=counted_pixels(classes) if self.ignores else None,
            dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32,
        )
        shares = LossShares(cross_entropy=self.cross_entropy_weight, dice=self.dice_weight)
        found: tuple[Tensor, Tensor]
        if self.num_classes == 2 and self.loss == "softmax":
            found = BinaryLoss.apply(logits, classes, factors, shares, self.ignores)  # type: ignore[no-untyped-call]
        else:
            is_sigmoid = self.loss == "sigmoid"
            found = ManyClassLoss.apply(  # type: ignore[no-untyped-call]
                logits, classes, factors, shares, is_sigmoid, self.ignores
            )
        return found

    def probabilities(self, logits: Tensor) -> Tensor:
        """The probability of each class at every pixel."""
        return at_least_float32(logits).softmax(1)

    def check_labels(self, data: DataSplits, *, output: torch.Size) -> None:
        """Does nothing: `check_output` already explains an output that does not fit the masks."""

    def check_output(self, shape: torch.Size, *, batch: int, num_classes: int, size: tuple[int, int]) -> None:
        """Raises unless the model's output is one number per sample, class and pixel of the labels."""
        needed = (batch, num_classes, *size)
        if tuple(shape) != needed:
            raise BadInputError(
                f"--model returns an output of shape {tuple(shape)} for {batch} images, but segmentation "
                f"into {num_classes} classes with labels of {size[0]} x {size[1]} pixels needs {needed}; see "
                "--num-classes and --image-size."
            )
