"""The rules of what ends a training early."""

from drivetrain.recipe.given import Given
from drivetrain.run.ending import parse_duration_s, parse_goal
from drivetrain.tasks.class_weights import parse_class_weights


def check_ending(given: Given) -> None:
    """--stop-at and --max-time must be readable."""
    recipe = given.recipe
    if recipe.stop_at is not None:
        parse_goal(recipe.stop_at)
    if recipe.max_time is not None:
        parse_duration_s(recipe.max_time)


def check_class_weights(given: Given) -> None:
    """--class-weights must be readable; whether there is one for each class the data will tell."""
    if given.recipe.class_weights:
        parse_class_weights(given.recipe.class_weights)
