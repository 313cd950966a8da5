"""From a recipe and its data to the task, and to what measures it."""

from dataclasses import replace

import torch

from drivetrain.data.source import DataSpec
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.classification import ClassificationTask
from drivetrain.tasks.classification_measure import ClassificationEvaluation
from drivetrain.tasks.from_recipe import build_measure, build_task, has_regions
from drivetrain.tasks.segmentation import SegmentationTask
from drivetrain.tasks.segmentation_measure import SegmentationEvaluation
from tests.data.dense_samples import dense_spec
from tests.tasks.dense_cases import random_case

DIGITS = DataSpec(
    channels=1, height=8, width=8, num_classes=3, class_names=("a", "b", "c"), image_dtype="uint8"
)
RECIPE = Recipe(
    model="unet_same",
    dataset="synthetic-em",
    loss="sigmoid",
    cross_entropy_weight=0.5,
    dice_weight=2.0,
    border_weight=7.0,
)


def test_a_classification_as_it_is_trained() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0])
    recipe = Recipe(dataset="digits", label_smoothing=0.1)
    task = build_task(recipe, DIGITS, class_weights=weights)
    assert isinstance(task, ClassificationTask)
    assert (task.label_smoothing, task.class_weights is weights, task.metric) == (0.1, True, "accuracy")


def test_a_segmentation_as_it_is_trained() -> None:
    weights = torch.tensor([1.0, 2.0])
    task = build_task(RECIPE, dense_spec(), class_weights=weights)
    assert task == SegmentationTask(
        num_classes=2,
        loss="sigmoid",
        cross_entropy_weight=0.5,
        dice_weight=2.0,
        class_weights=weights,
        border_weight=7.0,
    )


def test_measuring_weighs_no_pixel() -> None:
    """Losses of validations are to be comparable between trainings of different weights."""
    logits, labels = random_case(codes=True)
    measure = build_measure(RECIPE, dense_spec(7, 6), wide_dtype=torch.float64)
    measure.add(logits, labels)
    found = measure.result()
    assert isinstance(found, SegmentationEvaluation)
    trained = build_task(RECIPE, dense_spec())
    assert isinstance(trained, SegmentationTask)
    plain = replace(trained, border_weight=0.0)
    assert found.losses.tolist() == plain.losses(logits, labels).tolist()
    assert found.losses.tolist() != trained.losses(logits, labels).tolist()
    assert found.regions is None


def test_measuring_a_classification() -> None:
    measure = build_measure(Recipe(dataset="digits"), DIGITS, wide_dtype=torch.float64, regions=True)
    measure.add(torch.eye(3), torch.tensor([0, 1, 1]))
    found = measure.result()
    assert isinstance(found, ClassificationEvaluation)
    assert found.accuracy == 2 / 3


def test_regions_are_scored_where_the_data_have_membranes_and_they_are_asked_for() -> None:
    membranes = dense_spec(7, 6, class_names=("membrane", "cell"))
    assert has_regions(membranes)
    assert has_regions(replace(membranes, class_names=("cell", "membrane")))
    assert not has_regions(dense_spec())
    assert not has_regions(dense_spec(classes=3, class_names=("membrane", "cell", "other")))
    logits, labels = random_case()
    for spec, asked, scored in (
        (membranes, True, True),
        (membranes, False, False),
        (dense_spec(7, 6), True, False),
    ):
        measure = build_measure(RECIPE, spec, wide_dtype=torch.float64, regions=asked)
        measure.add(logits, labels)
        assert ("v_rand" in measure.result().as_metrics()) == scored
