"""The run that a command without --output-dir continued before there were rules for it."""

from contextlib import suppress
from pathlib import Path

from drivetrain.core.errors import DrivetrainError
from drivetrain.recipe.layout import batch_of
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.run.request import prepare_request
from drivetrain.store.crossval_directory import choose_job
from drivetrain.store.directory import DEFAULT_PARENT

__all__ = ["plain_run"]


def plain_run(plain: ResolvedRecipe) -> Path | None:
    """The directory of a run or cross-validation that the plain defaults would continue, if there is one."""
    with suppress(DrivetrainError):
        return _plain_job(plain) if _is_job(plain) else _plain_training(plain)
    return None


def _is_job(plain: ResolvedRecipe) -> bool:
    return plain.recipe.folds is not None and plain.recipe.fold is None


def _plain_job(plain: ResolvedRecipe) -> Path | None:
    batch = batch_of(plain.recipe)
    directory, _, is_fresh = choose_job(plain.recipe, name=plain.name, global_batch=batch.global_batch)
    return None if is_fresh else directory.path


def _plain_training(plain: ResolvedRecipe) -> Path | None:
    # Opening the data takes time, so only where there is a directory that may be meant.
    if not any(DEFAULT_PARENT.glob(f"{plain.name}-*")):
        return None
    request = prepare_request(plain)
    return request.directory.path if request.goes_on else None
