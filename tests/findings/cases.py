"""Records of trainings and evaluations, written down instead of trained."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.tasks import TaskName
from drivetrain.data.files.crop import Fit
from drivetrain.data.files.folder_files import FolderStore
from drivetrain.data.files.image_source import ImageSource
from drivetrain.data.masks.masked_images import HeldMaskedImages
from drivetrain.data.source import ArraySource, Source
from drivetrain.data.training_tiles import UniformSource
from drivetrain.findings.record import Measured, TrainingRecord
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.classification_measure import ClassificationEvaluation, Guesses
from drivetrain.tasks.segmentation_measure import SegmentationEvaluation

__all__ = ["a_recipe", "a_record", "labelled", "masked"]

UPDATES = 200


def a_recipe(**options: Any) -> Recipe:
    given = {"dataset": "image-folder", "data_dir": "photos", "model": "resnet18", **options}
    return resolve_recipe(overrides=given, decided={}).recipe


def a_record(
    *,
    losses: Sequence[float] = (2.3, 0.1),
    train: float = 0.97,
    validations: Sequence[float] = (0.5, 0.8, 0.92, 0.95, 0.96),
    updates: int = UPDATES,
    rate: float = 0.1,
    recipe: Recipe | None = None,
    task: TaskName = "classification",
    **others: Any,
) -> TrainingRecord:
    """A healthy training, unless something else is said; curves go in a straight line between the values."""
    metric = {"classification": "accuracy", "segmentation": "dice"}[task]
    every = updates // max(1, len(validations))
    return TrainingRecord(
        recipe=recipe or a_recipe(),
        task=task,
        columns={
            "loss": np.interp(np.linspace(0, 1, updates), np.linspace(0, 1, len(losses)), losses),
            metric: np.full(updates, train),
            "learning_rate": np.linspace(rate, 0, updates),
        },
        validations=tuple(
            {"event": "validation", "update": every * place, metric: value, "validation_samples": 500}
            for place, value in enumerate(validations, start=1)
        ),
        **others,
    )


def labelled(
    labels: Sequence[int],
    classes: Sequence[int],
    confidences: Sequence[float] | None = None,
    *,
    names: tuple[str, ...] = ("church", "parachute", "radio"),
    has_files: bool = True,
    split: str = "validation",
) -> Measured:
    """An evaluation of a classifier that predicted `classes`."""
    true, predicted = (np.asarray(given, dtype=np.int32) for given in (labels, classes))
    sure = np.linspace(0.5, 0.9, len(true)) if confidences is None else np.asarray(confidences)
    confusion = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(confusion, (true, predicted), 1)
    return Measured(
        evaluation=ClassificationEvaluation(
            loss=1.0,
            top5_accuracy=None,
            confusion=confusion,
            guesses=Guesses(
                labels=true,
                classes=predicted,
                confidences=sure.astype(np.float32),
                losses=np.zeros(len(true), dtype=np.float32),
            ),
        ),
        source=_images(true.astype(np.int64), has_files=has_files),
        class_names=names,
        split=split,
    )


def _images(labels: NDArray[np.int64], *, has_files: bool) -> Source:
    if not has_files:
        return ArraySource(images=np.zeros((len(labels), 2, 2, 1), dtype=np.uint8), labels=labels)
    store = FolderStore(root="photos", names=tuple(f"{place}.jpg" for place in range(len(labels))))
    return ImageSource(store=store, labels=labels, fit=Fit(short_side=None, height=2, width=2), channels=1)


def masked(confusions: Sequence[Sequence[Sequence[int]]], *, split: str = "validation") -> Measured:
    """An evaluation of masks with as many classes as the counts of pixels have rows."""
    counts = np.asarray(confusions, dtype=np.int64)
    images, classes = counts.shape[:2]
    held = HeldMaskedImages(
        images=np.zeros((images, 2, 2, 1), dtype=np.uint8),
        masks=np.zeros((images, 2, 2, 1), dtype=np.uint8),
        names=tuple(f"masks/{place}.png" for place in range(images)),
    )
    names = ("background", "cell", "wall")[:classes]
    return Measured(
        evaluation=SegmentationEvaluation(
            class_names=names,
            losses=np.zeros(images),
            class_dice=np.zeros((images, classes)),
            confusions=counts,
        ),
        source=UniformSource(held),
        class_names=names,
        split=split,
    )
