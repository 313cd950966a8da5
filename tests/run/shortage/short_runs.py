"""Small runs in which memory runs out on one rank; rank processes import them by name."""

import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.run.loop.forced_shortage import FORCED_SHORTAGE
from drivetrain.store.metrics_file import MetricsLog
from tests.run.rank_runs import Ending, train_rank
from tests.run.small_training import final_files

__all__ = ["OPTIONS", "bits", "only_until", "train_short"]

OPTIONS: dict[str, Any] = {
    "limit_train_samples": 64,
    "global_batch_size": 32,
    "num_epochs": 3,
    "checkpoint_every": 20,
    "keep_checkpoints": 9,
    "evaluate_every": 6,
    "num_threads": 1,
}


def train_short_rank(group: ReplicaGroup, path: str, options: dict[str, Any], shortage: str) -> Ending:
    """One rank's training; `shortage` says where memory runs out, nowhere if it is empty."""
    with mock.patch.dict(os.environ, {FORCED_SHORTAGE: shortage} if shortage else {}):
        return train_rank(group, path, options)


def train_short(pool: RankPool, path: Path, shortage: str = "", *, ranks: int, **options: Any) -> None:
    """Trains six updates of the small recipe on some ranks; memory runs out where `shortage` says."""
    endings = pool.run(train_short_rank, str(path), {**OPTIONS, **options}, shortage, ranks=ranks)
    assert [ending[:3] for ending in endings] == [("finished", 6, 0)] * ranks


def only_until(path: Path, update: int, *, copy: Path) -> Path:
    """A copy of a run as it was after an update."""
    shutil.copytree(path, copy)
    for checkpoint in (copy / "checkpoints").iterdir():
        if int(checkpoint.name) > update:
            shutil.rmtree(checkpoint)
    MetricsLog(copy / "metrics.jsonl").rewind(update)
    assert (copy / "checkpoints" / str(update)).is_dir()
    return copy


def bits(path: Path) -> dict[str, bytes]:
    """The weights and the optimiser's state at the end of a run."""
    files = final_files(path)
    return {name: files[name] for name in ("model.safetensors", "optimizer.safetensors", "update")}
