"""The rules of what ends a training early, and of what its best validation is."""

from drivetrain.recipe.class_weights import parse_class_weights
from drivetrain.recipe.ending import check_best_by, parse_duration_s, parse_goal
from drivetrain.recipe.given import Given


def check_ending(given: Given) -> None:
    """--stop-at and --max-time must be readable, and --best-by a metric that may be there."""
    from drivetrain.catalogue.data_sets import dataset_task
    from drivetrain.catalogue.models import model_task

    recipe = given.recipe
    task = dataset_task(recipe.dataset) or model_task(recipe.model)
    check_best_by(recipe, tasks=("classification", "segmentation") if task is None else (task,))
    if recipe.stop_at is not None:
        parse_goal(recipe.stop_at)
    if recipe.max_time is not None:
        parse_duration_s(recipe.max_time)


def check_class_weights(given: Given) -> None:
    """--class-weights must be readable; whether there is one for each class the data will tell."""
    if given.recipe.class_weights:
        parse_class_weights(given.recipe.class_weights)
