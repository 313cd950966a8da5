"""What is known of tasks by name, and whether the rest of the catalogue and the recipe agree."""

from typing import get_args

import pytest

from drivetrain.catalogue.data_sets import dataset_task
from drivetrain.catalogue.metrics import SCORES
from drivetrain.catalogue.models import model_task, named_task
from drivetrain.catalogue.tasks import DEFAULT_TASK, TASKS, TaskInfo, TaskName, task_info
from drivetrain.recipe.fields import fields_of_task
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe

EVERY_TASK = pytest.mark.parametrize("info", TASKS, ids=lambda info: info.name)


def test_every_name_has_one_description() -> None:
    assert [info.name for info in TASKS] == list(get_args(TaskName))
    assert all(task_info(info.name) is info for info in TASKS)


@EVERY_TASK
def test_examples_are_of_the_task(info: TaskInfo) -> None:
    assert dataset_task(info.example_dataset) == model_task(info.example_model) == info.name


@EVERY_TASK
def test_options_are_fields_that_some_task_does_not_have(info: TaskInfo) -> None:
    options = {task.name: set(fields_of_task(task.name)) for task in TASKS}
    assert options[info.name]
    assert options[info.name] <= set(Recipe.model_fields)
    assert not options[info.name].intersection(*options.values())


@EVERY_TASK
def test_metrics(info: TaskInfo) -> None:
    assert info.main_metric in info.metrics
    of_foreground = [name for name in info.metrics if name.startswith("foreground_")]
    assert of_foreground == ([f"foreground_{score}" for score in SCORES] if info.has_class_scores else [])


@EVERY_TASK
def test_a_default_recipe_is_of_the_task(info: TaskInfo) -> None:
    if info.default_recipe is not None:
        recipe = resolve_recipe(config=info.default_recipe).recipe
        assert named_task(dataset=recipe.dataset, model=recipe.model) == info.name


def test_names_tell_the_task_where_either_does() -> None:
    assert named_task(dataset="my_data:open", model="unet") == "segmentation"
    assert named_task(dataset="digits", model="my_models:net") == "classification"
    assert named_task(dataset="my_data:open", model="my_models:net") is None
    assert DEFAULT_TASK == "classification"
