"""Classification: cross-entropy over classes, accuracy."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from drivetrain.core.errors import BadInputError
from drivetrain.data.advice import refuse_late_labels
from drivetrain.data.source import DataSplits
from drivetrain.tasks.task import at_least_float32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationTask:
    """Loss and metrics as sums over samples, so that any cut of a batch adds up to the same."""

    label_smoothing: float = 0.0
    class_weights: Tensor | None = None

    @property
    def metric(self) -> str:
        return "accuracy"

    def losses_and_scores(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each sample, and 1 where its most likely class is right."""
        losses = self.losses(logits, labels)
        return losses, self.correct(logits, labels).to(losses.dtype)

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each sample, in float32 or wider, times its class's weight.

        A sample's weight does not depend on its company: the sum is divided by the number of samples, not
        by the sum of their weights.
        """
        losses = F.cross_entropy(
            at_least_float32(logits), labels, reduction="none", label_smoothing=self.label_smoothing
        )
        return losses if self.class_weights is None else losses * self.class_weights[labels]

    def mixed_losses(self, logits: Tensor, labels: Tensor, *, partners: Tensor, own_share: Tensor) -> Tensor:
        """The loss of images that are a share of one sample and the rest of another."""
        own, other = self.losses(logits, labels), self.losses(logits, partners)
        return own_share * own + (1.0 - own_share) * other

    def correct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """1 for each sample whose most likely class is right, else 0."""
        return logits.detach().argmax(1) == labels

    def probabilities(self, logits: Tensor) -> Tensor:
        return at_least_float32(logits).softmax(1)

    def check_labels(self, data: DataSplits, *, output: torch.Size) -> None:
        """Refuses labels that start above 0, for a model with too few outputs for them."""
        if len(output) == 2 and output[1] < data.spec.num_classes:
            refuse_late_labels(data, outputs=output[1])

    def check_output(
        self,
        shape: torch.Size,
        *,
        batch: int,
        num_classes: int,
        size: tuple[int, int],  # noqa: ARG002
    ) -> None:
        """Refuses a model whose output is not one number per sample and class."""
        if tuple(shape) != (batch, num_classes):
            raise BadInputError(
                f"--model gives an output of shape {tuple(shape)} for {batch} images; classification over "
                f"{num_classes} classes needs ({batch}, {num_classes}); {_way_out(shape, num_classes)}."
            )


def _way_out(shape: torch.Size, num_classes: int) -> str:
    """What to do about an output of another width."""
    if len(shape) == 2 and shape[1] > num_classes:
        return f"--num-classes {shape[1]} would keep the rest for classes without samples"
    return f"labels start at 0, and the largest is {num_classes - 1} in the data or by --num-classes"
