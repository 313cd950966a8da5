"""A rank that waits two seconds for the others; rank processes import it by name."""

from pathlib import Path
from unittest.mock import patch

from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.collective_timeout import CollectiveTimeout
from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.loop import loop
from drivetrain.run.rank_training import train_as_rank
from drivetrain.run.request import prepare_request
from tests.ranks.rank_functions import arrive

_UNDER_WAY = 10


def train_impatiently(folder: Path, ranks: int) -> int:
    """Trains for long in a single execution; a file says that it is under way."""
    place = arrive(folder, ranks=ranks)
    run_update = TrainingProgram.run_update

    def run_and_tell(program: TrainingProgram, update: int) -> None:
        run_update(program, update)
        if update == _UNDER_WAY:
            (folder / "under way").touch()

    resolved = resolve_recipe(
        overrides={
            "dataset": "digits",
            "limit_train_samples": 96,
            "micro_batch_size": 8,
            "max_updates": 100000,
            "log_every": 100000,
            "replicas": ranks,
            "device": "cpu",
            "num_threads": 1,
            "validation": False,
            "checkpoints": False,
            "output_dir": str(folder / "run"),
        }
    )
    with (
        patch.object(
            loop, "CollectiveTimeout", lambda set_timeout: CollectiveTimeout(set_timeout, least_update_s=5.0)
        ),
        patch.object(TrainingProgram, "run_update", run_and_tell),
    ):
        return train_as_rank(place, prepare_request(resolved), quiet=True).exit_status
