"""The run that a command without --output-dir continued before there were rules for it."""

from contextlib import suppress
from pathlib import Path

from drivetrain.core.errors import DrivetrainError
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.run.request import prepare_request
from drivetrain.store.directory import DEFAULT_PARENT

__all__ = ["plain_run"]


def plain_run(plain: ResolvedRecipe) -> Path | None:
    """The directory of a run that the plain defaults would continue; None if there is none."""
    # Opening the data takes time, so only where there is a directory that may be meant.
    if not any(DEFAULT_PARENT.glob(f"{plain.name}-*")):
        return None
    with suppress(DrivetrainError):
        request = prepare_request(plain)
        return request.directory.path if request.goes_on else None
    return None
