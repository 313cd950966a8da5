"""The rules of the loggers."""

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.given import Given


def check_logging(given: Given) -> None:
    """A folder for logs needs a logger that writes there."""
    recipe = given.recipe
    if recipe.log_dir is not None and not (recipe.tensorboard or recipe.wandb):
        raise BadInputError(
            f"{given.option('log_dir')} has no effect without a logger; add --tensorboard or --wandb."
        )
