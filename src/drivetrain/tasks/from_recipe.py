"""Builds the task, the class weights and the metrics from a recipe and its data."""

from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.catalogue.data_sets import MEMBRANE
from drivetrain.catalogue.tasks import TaskName
from drivetrain.data.labels import labels_of
from drivetrain.data.masks.masked_images import pixel_counts
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.data.training_tiles import masked_of
from drivetrain.recipe.class_weights import class_weights_of, pixel_class_weights
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.classification import ClassificationTask
from drivetrain.tasks.classification_measure import ClassificationMeasure
from drivetrain.tasks.segmentation import SegmentationTask
from drivetrain.tasks.segmentation_measure import SegmentationMeasure
from drivetrain.tasks.task import Measure, Task

__all__ = ["build_measure", "build_task", "training_class_weights"]

ClassWeights = NDArray[np.float32]


def build_task(recipe: Recipe, spec: DataSpec, *, class_weights: Tensor | None = None) -> Task:
    """The task to train; without class weights every sample (or pixel) counts the same."""
    return _KINDS[spec.task].task(recipe, spec, class_weights=class_weights)


def build_measure(
    recipe: Recipe, spec: DataSpec, *, wide_dtype: torch.dtype, regions: bool = False
) -> Measure:
    """The metrics for these data; `regions` also scores whole objects, if the data have any."""
    return _KINDS[spec.task].measure(recipe, spec, wide_dtype=wide_dtype, regions=regions)


def training_class_weights(recipe: Recipe, data: DataSplits) -> ClassWeights | None:
    """The weight of each class in the training loss; None if all count the same."""
    return _KINDS[data.spec.task].class_weights(recipe, data) if recipe.class_weights else None


def has_regions(spec: DataSpec) -> bool:
    """Whether the masks show membranes around cells, so that cells can be scored as objects."""
    return spec.has_dense_labels and len(spec.class_names) == 2 and MEMBRANE in spec.class_names


class _Kind(Protocol):
    """Builds the parts of one task from a recipe."""

    def task(self, recipe: Recipe, spec: DataSpec, *, class_weights: Tensor | None) -> Task: ...

    def measure(
        self, recipe: Recipe, spec: DataSpec, *, wide_dtype: torch.dtype, regions: bool
    ) -> Measure: ...

    def class_weights(self, recipe: Recipe, data: DataSplits) -> ClassWeights: ...


class _Classification:
    def task(
        self,
        recipe: Recipe,
        spec: DataSpec,  # noqa: ARG002
        *,
        class_weights: Tensor | None,
    ) -> ClassificationTask:
        return ClassificationTask(label_smoothing=recipe.label_smoothing, class_weights=class_weights)

    def measure(
        self,
        recipe: Recipe,
        spec: DataSpec,
        *,
        wide_dtype: torch.dtype,
        regions: bool,  # noqa: ARG002
    ) -> ClassificationMeasure:
        task = self.task(recipe, spec, class_weights=None)
        return ClassificationMeasure(task, num_classes=spec.num_classes, wide_dtype=wide_dtype)

    def class_weights(self, recipe: Recipe, data: DataSplits) -> ClassWeights:
        return class_weights_of(
            recipe.class_weights, labels_of(data.train), num_classes=data.spec.num_classes
        )


class _Segmentation:
    def task(self, recipe: Recipe, spec: DataSpec, *, class_weights: Tensor | None) -> SegmentationTask:
        return SegmentationTask(
            num_classes=spec.num_classes,
            loss=recipe.loss,
            cross_entropy_weight=recipe.cross_entropy_weight,
            dice_weight=recipe.dice_weight,
            class_weights=class_weights,
            border_weight=recipe.border_weight,
            ignores=spec.ignores_pixels,
        )

    def measure(
        self, recipe: Recipe, spec: DataSpec, *, wide_dtype: torch.dtype, regions: bool
    ) -> SegmentationMeasure:
        return SegmentationMeasure(
            replace(self.task(recipe, spec, class_weights=None), border_weight=0.0),
            class_names=spec.class_names,
            wide_dtype=wide_dtype,
            regions=regions and has_regions(spec),
        )

    def class_weights(self, recipe: Recipe, data: DataSplits) -> ClassWeights:
        num_classes = data.spec.num_classes
        counts = pixel_counts(masked_of(data.train), num_classes=num_classes)
        return pixel_class_weights(recipe.class_weights, counts, num_classes=num_classes)


_KINDS: dict[TaskName, _Kind] = {"classification": _Classification(), "segmentation": _Segmentation()}
