"""Everything that must be right before a run writes its first file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.data.source import DataSplits
from drivetrain.errors import BadInputError
from drivetrain.plan.build import TrainingPlan
from drivetrain.recipe.schema import Recipe
from drivetrain.run.directory import (
    RunDirectory,
    check_same_identity,
    check_writable,
    default_run_path,
    identity_of,
)
from drivetrain.run.files import read_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a run goes, and what it must remain."""

    directory: RunDirectory
    identity: dict[str, Any]
    continues: bool


def choose_destination(recipe: Recipe, *, name: str, plan: TrainingPlan, data: DataSplits) -> Destination:
    """The run directory of a request; refuses one that holds another run or cannot be written."""
    identity = {
        **identity_of(recipe, global_batch=plan.batch.global_batch),
        "training_samples": len(data.train),
        "class_names": list(data.spec.class_names),
    }
    path = Path(recipe.output_dir) if recipe.output_dir else default_run_path(name, identity)
    check_writable(path)
    directory = RunDirectory(path)
    continues = directory.holds_run and not recipe.overwrite
    if continues:
        check_same_identity(_stored_identity(directory), identity, path=path)
    elif path.is_dir() and not directory.holds_run and any(path.iterdir()):
        raise BadInputError(
            f"--output-dir {path} is not empty and holds no run; name an empty or a new directory."
        )
    return Destination(directory=directory, identity=identity, continues=continues)


def _stored_identity(directory: RunDirectory) -> dict[str, Any]:
    try:
        return read_json(directory.identity)
    except (OSError, ValueError) as error:
        raise BadInputError(
            f"--output-dir {directory.path} holds a run whose identity.json cannot be read ({error}); "
            "--overwrite starts afresh."
        ) from error
