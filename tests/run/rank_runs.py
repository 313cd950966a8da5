"""Small runs inside the ranks of a pool, which cost no start of processes."""

import hashlib
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from drivetrain.console.reporter import Reporter
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.request import prepare_request
from drivetrain.run.summary import finish
from drivetrain.run.train import train_request
from drivetrain.store.update_history import load_history

GLOBAL_BATCH = 16
SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "cifar_resnet8",
    "limit_train_samples": 36,
    "limit_validation_samples": 21,
    "micro_batch_size": 8,
    "global_batch_size": GLOBAL_BATCH,
    "num_epochs": 2,
    "learning_rate": 0.01,
    "seed": 1,
    "device": "cpu",
}
_PICTURES = ("draw_curves", "draw_predictions", "write_evaluation")
Ending = tuple[str, int, int, str]


def train_rank(group: ReplicaGroup, path: str, options: dict[str, Any]) -> Ending:
    """One rank's training: how it ended, after how many updates, with which status and weights."""
    given = {**SMALL, "replicas": group.size, "output_dir": path, **options}
    request = prepare_request(resolve_recipe(overrides=given))
    nothing: dict[str, Any] = {name: lambda *_, **__: None for name in _PICTURES}
    with mock.patch.multiple(finish, **nothing), Reporter(quiet=True) as reporter:
        result = train_request(request, reporter=reporter, group=group)
    state = hashlib.sha256()
    for value in result.model.state_dict().values():
        state.update(value.numpy().tobytes())
    return result.status, result.updates, result.exit_status, state.hexdigest()


def train_in_ranks(pool: RankPool, path: Path, *, ranks: int, **options: Any) -> Ending:
    """Trains the small recipe on some ranks, which must all end alike."""
    endings: list[Ending] = pool.run(train_rank, str(path), options, ranks=ranks)
    assert len(set(endings)) == 1, endings
    return endings[0]


def train_next_update(
    pool: RankPool, path: Path, *, first: int, layouts: dict[str, dict[str, Any]], **options: Any
) -> list[Path]:
    """Runs in which each layout (`ranks`, and options of its own) did the same update from an equal state.

    Two trainings would measure the processor: rounding grows from update to update.
    """
    options = {"lr_schedule": "const", **options}
    start = path / "start"
    first_layout = {"ranks": 1, **next(iter(layouts.values()))}
    train_in_ranks(pool, start, max_updates=first, **{**options, **first_layout})
    for name, layout in layouts.items():
        shutil.copytree(start, path / name)
        train_in_ranks(pool, path / name, max_updates=first + 1, **{**options, "ranks": 1, **layout})
    return [path / name for name in layouts]


def losses(path: Path) -> NDArray[np.float64]:
    """The loss of every update."""
    return load_history(path / "updates.npz")["loss"]


def weights(path: Path, name: str = "model") -> dict[str, NDArray[Any]]:
    """What the newest checkpoint keeps under a name."""
    newest = max((path / "checkpoints").glob("[0-9]*"), key=lambda entry: int(entry.name))
    return load_file(newest / f"{name}.safetensors")
