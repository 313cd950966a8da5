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
    """Loss and accuracy per sample, so that the sum is the same however a batch is split."""

    label_smoothing: float = 0.0
    class_weights: Tensor | None = None

    @property
    def metric(self) -> str:
        return "accuracy"

    def losses_and_scores(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each sample, and its score: 1 if the most likely class is right, else 0."""
        losses = self.losses(logits, labels)
        return losses, self.correct(logits, labels).to(losses.dtype)

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each sample, in float32 or wider, multiplied by the weight of its class.

        The mean is taken over the number of samples, not over the sum of their weights, so the weight of a
        sample does not depend on the others in its batch.
        """
        losses = F.cross_entropy(
            at_least_float32(logits), labels, reduction="none", label_smoothing=self.label_smoothing
        )
        return losses if self.class_weights is None else losses * self.class_weights[labels]

    def mixed_losses(self, logits: Tensor, labels: Tensor, *, partners: Tensor, own_share: Tensor) -> Tensor:
        """The loss of mixed images: `own_share` of the sample itself, the rest of its partner."""
        own, other = self.losses(logits, labels), self.losses(logits, partners)
        return own_share * own + (1.0 - own_share) * other

    def correct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Whether the most likely class of each sample is right."""
        return logits.detach().argmax(1) == labels

    def probabilities(self, logits: Tensor) -> Tensor:
        return at_least_float32(logits).softmax(1)

    def check_labels(self, data: DataSplits, *, output: torch.Size) -> None:
        """Raises if labels start above 0 and the model has too few outputs for them."""
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
        """Raises unless the model's output is one number per sample and class."""
        if tuple(shape) != (batch, num_classes):
            raise BadInputError(
                f"--model returns an output of shape {tuple(shape)} for {batch} samples, but classification "
                f"into {num_classes} classes needs ({batch}, {num_classes}); {_way_out(shape, num_classes)}."
            )


def _way_out(shape: torch.Size, num_classes: int) -> str:
    """Advice for an output with another number of classes."""
    if len(shape) == 2 and shape[1] > num_classes:
        return f"--num-classes {shape[1]} keeps the additional outputs for classes without samples"
    return f"labels start at 0, and the largest is {num_classes - 1} by the data or by --num-classes"
