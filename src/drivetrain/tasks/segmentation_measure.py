"""Accumulates the metrics of a segmentation: every image counts once, whatever the batches."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from drivetrain.catalogue.data_sets import background_class
from drivetrain.core.errors import BadInputError
from drivetrain.tasks.region_metrics import RegionScores, region_scores
from drivetrain.tasks.segmentation import SegmentationTask
from drivetrain.tasks.segmentation_evaluation import SegmentationEvaluation
from drivetrain.tasks.segmentation_loss import counted_pixels

__all__ = ["SegmentationEvaluation", "SegmentationMeasure"]

_State = tuple[list[tuple[Tensor, Tensor, Tensor]], list[RegionScores] | None]


class SegmentationMeasure:
    """Accumulates metrics per image, on the device until the end; batches may have different image sizes.

    `regions` also scores whole objects, for which the classes of each batch are copied to the CPU.
    """

    def __init__(
        self,
        task: SegmentationTask,
        *,
        class_names: Sequence[str],
        wide_dtype: torch.dtype,
        regions: bool = False,
    ) -> None:
        self._task = task
        self._class_names = tuple(class_names)
        self._wide_dtype = wide_dtype
        self._regions: list[RegionScores] | None = [] if regions else None
        self._batches: list[tuple[Tensor, Tensor, Tensor]] = []

    @torch.no_grad()
    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch of logits (samples, classes, height, width) with its labels."""
        # In wide numbers, so that the result of an image does not depend on the batch it is in.
        losses, dice = self._task.losses_and_class_dice(logits.to(self._wide_dtype), labels)
        predicted = logits.argmax(1).to(torch.uint8)
        truth = labels[..., 0]
        self._batches.append((losses, dice, self._confusions(predicted, truth)))
        if self._regions is not None:
            self._regions += self._region_scores(predicted, truth)

    def state(self) -> _State:
        """The results so far, on the CPU."""
        batches = [(losses.cpu(), dice.cpu(), counts.cpu()) for losses, dice, counts in self._batches]
        return batches, self._regions

    def take(self, states: Sequence[_State]) -> None:
        """Replaces the results by those of several processes, in rank order."""
        self._batches = [batch for batches, _ in states for batch in batches]
        if self._regions is not None:
            self._regions = [scores for _, regions in states for scores in regions or []]

    def result(self) -> SegmentationEvaluation:
        """The metrics of all images so far."""
        assert self._batches, "an evaluation needs at least one sample"
        losses, dice, confusions = (
            torch.cat([batch[part] for batch in self._batches]).cpu().numpy() for part in range(3)
        )
        if not confusions.any():
            raise BadInputError(
                f"--ignore-class leaves no pixel of the {len(losses)} validation images to measure; use "
                "other validation images, for example with another --seed or --validation-fraction."
            )
        return SegmentationEvaluation(
            class_names=self._class_names,
            losses=losses.astype(np.float64),
            class_dice=dice.astype(np.float64),
            confusions=confusions,
            regions=None if self._regions is None else tuple(self._regions),
        )

    def _confusions(self, predicted: Tensor, truth: Tensor) -> Tensor:
        """Pixels of each image by true (row) and predicted (column) class: (samples, classes, classes)."""
        classes = len(self._class_names)
        cells = (truth.to(torch.int64) * classes + predicted).flatten(1)
        if self._task.ignores:
            # Ignored pixels are counted in a cell of their own, which is left out.
            cells = torch.where(counted_pixels(truth.flatten(1)), cells, classes**2)
        counts = torch.zeros(len(cells), classes**2 + 1, dtype=torch.int64, device=cells.device)
        counts.scatter_add_(1, cells, torch.ones_like(cells))
        return counts[:, :-1].view(-1, classes, classes)

    def _region_scores(self, predicted: Tensor, truth: Tensor) -> list[RegionScores]:
        background = background_class(self._class_names)
        if self._task.ignores:
            truth = torch.where(counted_pixels(truth), truth, background)
        pairs = zip(predicted.cpu().numpy(), truth.cpu().numpy(), strict=True)
        return [region_scores(found, true, background=background) for found, true in pairs]
