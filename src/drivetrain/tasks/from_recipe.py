"""From a recipe and the data it trains on to the task, and to what measures it."""

import torch
from torch import Tensor

from drivetrain.catalogue.data_sets import MEMBRANE
from drivetrain.data.source import DataSpec
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.classification import ClassificationTask
from drivetrain.tasks.classification_measure import ClassificationMeasure
from drivetrain.tasks.segmentation import SegmentationTask
from drivetrain.tasks.segmentation_measure import SegmentationMeasure
from drivetrain.tasks.task import Measure, Task

__all__ = ["build_measure", "build_task"]


def build_task(recipe: Recipe, spec: DataSpec, *, class_weights: Tensor | None = None) -> Task:
    """The task as it is trained; without class weights every sample (or pixel) counts the same."""
    if spec.task == "segmentation":
        return _segmentation(recipe, spec, class_weights=class_weights, border_weight=recipe.border_weight)
    return ClassificationTask(label_smoothing=recipe.label_smoothing, class_weights=class_weights)


def build_measure(
    recipe: Recipe, spec: DataSpec, *, wide_dtype: torch.dtype, regions: bool = False
) -> Measure:
    """What measures a model on these data; `regions` also scores whole objects where the data have some."""
    if spec.task == "segmentation":
        return SegmentationMeasure(
            _segmentation(recipe, spec),
            class_names=spec.class_names,
            wide_dtype=wide_dtype,
            regions=regions and has_regions(spec),
        )
    task = ClassificationTask(label_smoothing=recipe.label_smoothing)
    return ClassificationMeasure(task, num_classes=spec.num_classes, wide_dtype=wide_dtype)


def has_regions(spec: DataSpec) -> bool:
    """Whether the masks are membranes around cells, which are scored as objects too."""
    return spec.task == "segmentation" and len(spec.class_names) == 2 and MEMBRANE in spec.class_names


def _segmentation(
    recipe: Recipe, spec: DataSpec, *, class_weights: Tensor | None = None, border_weight: float = 0.0
) -> SegmentationTask:
    return SegmentationTask(
        num_classes=spec.num_classes,
        loss=recipe.loss,
        cross_entropy_weight=recipe.cross_entropy_weight,
        dice_weight=recipe.dice_weight,
        class_weights=class_weights,
        border_weight=border_weight,
    )
