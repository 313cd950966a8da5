"""The metrics of a segmentation over a set of images: in total, by class and by image."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.metrics import SCORES, foreground_first
from drivetrain.tasks.region_metrics import RegionScores

__all__ = ["SegmentationEvaluation", "foreground_dice"]

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentationEvaluation:
    """`class_dice` is the soft Dice (images, classes); `confusions` counts pixels (images, true, predicted).

    Loss and soft Dice are means over images; hard Dice, IoU and pixel accuracy are computed over all pixels
    together. Hard Dice and IoU are means over the classes that occur in truth or prediction, soft Dice over
    all classes. Ignored pixels count nowhere; an image of nothing else counts in no mean.
    """

    class_names: tuple[str, ...]
    losses: NDArray[np.float64]
    class_dice: NDArray[np.float64]
    confusions: Counts
    regions: tuple[RegionScores, ...] | None = None

    @property
    def samples(self) -> int:
        return len(self.losses)

    @property
    def confusion(self) -> Counts:
        """Pixels of all images by true (row) and predicted (column) class."""
        return np.asarray(self.confusions.sum(0), dtype=np.int64)

    @property
    def loss(self) -> float:
        return _mean(self.losses[self._is_measured].tolist())

    @property
    def dice(self) -> float:
        """The soft Dice: mean over images of the mean over classes."""
        return _mean(self.class_dice[self._is_measured].mean(1).tolist())

    @property
    def _is_measured(self) -> NDArray[np.bool_]:
        """Which images have a pixel that counts."""
        return np.asarray(self.confusions.any(axis=(1, 2)))

    @property
    def _mean_class_dice(self) -> NDArray[np.float64]:
        """The soft Dice of each class, as a mean over images."""
        return np.asarray(self.class_dice[self._is_measured].mean(0))

    @property
    def hard_dice(self) -> float:
        return _mean_of_known(hard_dice_by_class(self.confusion))

    @property
    def iou(self) -> float:
        return _mean_of_known(iou_by_class(self.confusion))

    @property
    def pixel_accuracy(self) -> float:
        return _accuracy(self.confusion)

    @property
    def v_rand(self) -> float | None:
        """Mean over images with objects; None where regions were not asked for, or there are none."""
        return _mean_or_none([scores.v_rand for scores in self.regions or ()])

    @property
    def v_info(self) -> float | None:
        """Mean over images with objects; None where regions were not asked for, or there are none."""
        return _mean_or_none([scores.v_info for scores in self.regions or ()])

    def as_metrics(self) -> dict[str, float]:
        """The numbers of a validation event."""
        regions = {"v_rand": self.v_rand, "v_info": self.v_info}
        return {
            "loss": self.loss,
            "dice": self.dice,
            "hard_dice": self.hard_dice,
            "iou": self.iou,
            "pixel_accuracy": self.pixel_accuracy,
            **{name: value for name, value in regions.items() if value is not None},
            **{name: value for name, value in self._class_metrics().items() if value is not None},
            "validation_samples": self.samples,
        }

    def of_classes(self) -> dict[str, Any]:
        """The pixels and scores of each class, foreground first."""
        return {"per_class": self.per_class()}

    def per_image(self) -> list[dict[str, float | None]]:
        """A row per image, in order; None for scores of classes that an image does not have."""
        return [self._row(index) for index in range(self.samples)]

    def foreground_scores(self) -> list[float]:
        """The hard Dice of each image's foreground; 1 if there is none and none was predicted."""
        means = [self._foreground_mean(hard_dice_by_class(counts)) for counts in self.confusions]
        return [1.0 if mean is None else mean for mean in means]

    def per_class(self) -> list[dict[str, str | int | float | None]]:
        """A row per class, foreground first.

        It has the number of true pixels, the soft Dice (`dice`) as a mean over images, and the hard Dice and
        IoU over all pixels.
        """
        counts = self.confusion
        columns = zip(
            self.class_names,
            counts.sum(1).tolist(),
            self._mean_class_dice.tolist(),
            hard_dice_by_class(counts),
            iou_by_class(counts),
            strict=True,
        )
        rows = [
            dict(zip(("class", "pixels", "dice", "hard_dice", "iou"), row, strict=True)) for row in columns
        ]
        return [rows[index] for index in foreground_first(self.class_names)]

    def _class_metrics(self) -> dict[str, float | None]:
        return self._scores_by_class(self._mean_class_dice.tolist(), self.confusion)

    def _scores_by_class(self, soft_dice: list[float | None], counts: Counts) -> dict[str, float | None]:
        """Each score as a mean over the foreground classes, and for each class, foreground first."""
        values = dict(zip(SCORES, (soft_dice, hard_dice_by_class(counts), iou_by_class(counts)), strict=True))
        found = {f"foreground_{score}": self._foreground_mean(own) for score, own in values.items()}
        for score, own in values.items():
            for index in foreground_first(self.class_names):
                found[f"{score}_{self.class_names[index]}"] = own[index]
        return found

    def _foreground_mean(self, values: list[float | None]) -> float | None:
        return _foreground_mean(values, self.class_names)

    def _row(self, index: int) -> dict[str, float | None]:
        counts = self.confusions[index]
        is_measured = bool(counts.any())
        row: dict[str, float | None] = {
            "loss": float(self.losses[index]) if is_measured else None,
            "soft_dice": float(self.class_dice[index].mean()) if is_measured else None,
            "hard_dice": _mean_or_none(hard_dice_by_class(counts)),
            "iou": _mean_or_none(iou_by_class(counts)),
            "pixel_accuracy": _accuracy(counts) if is_measured else None,
        }
        if self.regions is not None:
            row |= {"v_rand": self.regions[index].v_rand, "v_info": self.regions[index].v_info}
        soft = [value if is_measured else None for value in self.class_dice[index].tolist()]
        return row | self._scores_by_class(soft, counts)


def foreground_dice(
    truth: NDArray[Any], prediction: NDArray[Any], *, class_names: Sequence[str]
) -> float | None:
    """The hard Dice of one image's foreground, as a mean over classes; None if there is no foreground.

    Pixels whose truth is no class are ignored.
    """
    classes = len(class_names)
    is_counted = truth.ravel() < classes
    cells = truth.ravel()[is_counted].astype(np.int64) * classes + prediction.ravel()[is_counted]
    counts = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    return _foreground_mean(hard_dice_by_class(counts), class_names)


def _foreground_mean(values: list[float | None], class_names: Sequence[str]) -> float | None:
    return _mean_or_none([values[index] for index in foreground_first(class_names)[:-1]])


def hard_dice_by_class(counts: Counts) -> list[float | None]:
    """2 x shared / (true + predicted) pixels; None for a class that occurs in neither."""
    shared, both = np.diagonal(counts), counts.sum(0) + counts.sum(1)
    return [2 * hits / total if total else None for hits, total in _pairs(shared, both)]


def iou_by_class(counts: Counts) -> list[float | None]:
    """Shared / (true or predicted) pixels; None for a class that occurs in neither."""
    shared = np.diagonal(counts)
    either = counts.sum(0) + counts.sum(1) - shared
    return [hits / total if total else None for hits, total in _pairs(shared, either)]


def _pairs(first: Counts, second: Counts) -> list[tuple[int, int]]:
    return list(zip(first.tolist(), second.tolist(), strict=True))


def _accuracy(counts: Counts) -> float:
    return int(np.trace(counts)) / int(counts.sum())


def _mean(values: list[float]) -> float:
    return fsum(values) / len(values)


def _mean_or_none(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _mean(known) if known else None


def _mean_of_known(values: list[float | None]) -> float:
    mean = _mean_or_none(values)
    assert mean is not None, "an image has at least one class"
    return mean
