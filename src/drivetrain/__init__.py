"""Drivetrain trains vision models; the layout (replicas, stages, accumulation) does not change the result."""

from typing import TYPE_CHECKING, Any

from drivetrain.core.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from drivetrain.api import certify, crossval, evaluate, make_plan, predict, train
    from drivetrain.core.errors import BadInputError, DrivetrainError, RunFailedError
    from drivetrain.core.stopped import TrainingTerminated
    from drivetrain.crossvalidation.job import CrossvalResult
    from drivetrain.data.source import DataSplits
    from drivetrain.models.create import create_model
    from drivetrain.pipeline.cutting.marks import assign_stages, stage
    from drivetrain.recipe.schema import Recipe
    from drivetrain.run.train import RunResult

_HOMES = {
    "BadInputError": "drivetrain.core.errors",
    "DataSplits": "drivetrain.data.source",
    "DrivetrainError": "drivetrain.core.errors",
    "Recipe": "drivetrain.recipe.schema",
    "RunFailedError": "drivetrain.core.errors",
    "RunResult": "drivetrain.run.train",
    "CrossvalResult": "drivetrain.crossvalidation.job",
    "TrainingTerminated": "drivetrain.core.stopped",
    "assign_stages": "drivetrain.pipeline.cutting.marks",
    "certify": "drivetrain.api",
    "create_model": "drivetrain.models.create",
    "crossval": "drivetrain.api",
    "evaluate": "drivetrain.api",
    "make_plan": "drivetrain.api",
    "predict": "drivetrain.api",
    "stage": "drivetrain.pipeline.cutting.marks",
    "train": "drivetrain.api",
}

__all__ = [
    "BadInputError",
    "CrossvalResult",
    "DataSplits",
    "DrivetrainError",
    "Recipe",
    "RunFailedError",
    "RunResult",
    "TrainingTerminated",
    "assign_stages",
    "certify",
    "create_model",
    "crossval",
    "evaluate",
    "make_plan",
    "predict",
    "stage",
    "train",
]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that `import drivetrain` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'drivetrain' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return [*__all__, "__version__"]
