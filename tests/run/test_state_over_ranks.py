"""State that layers keep in attributes, in runs of several ranks: stored, shared and gone on with."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE
from tests.run.rank_runs import train_rank

OPTIONS: dict[str, Any] = {
    "model": "tests.pipeline.moving_models:WithState",
    "micro_batch_size": 4,
    "lr_schedule": "const",
    "num_epochs": 100000,
    "num_threads": 1,
    "validation": False,
    "limit_validation_samples": None,
    "compile": "off",
}
STAGES = {"stages": 2, "replicas": 1}
REPLICAS = {"replicas": 2}


def _run(pool: RankPool | None, path: Path, layer: str, updates: int, layout: dict[str, Any]) -> None:
    options = {**OPTIONS, "model_params": {"layer": layer}, "max_updates": updates, **layout}
    if pool is None:
        train_rank(ALONE, str(path), options)
    else:
        pool.run(train_rank, str(path), options, ranks=2)


def _files(run: Path, update: int) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in (run / "checkpoints" / str(update)).glob("*.safetensors")
    }


@pytest.mark.parametrize("layer", ["Python number", "plain tensor", "made late", "parameter"])
def test_stages_on_two_ranks_go_on_as_one_process_would(
    rank_pool: RankPool, tmp_path: Path, layer: str
) -> None:
    _run(None, tmp_path / "alone", layer, 3, {})
    _run(rank_pool, tmp_path / "stages", layer, 2, STAGES)
    assert _files(tmp_path / "stages", 2) != _files(tmp_path / "alone", 3)
    _run(rank_pool, tmp_path / "stages", layer, 3, STAGES)
    assert _files(tmp_path / "stages", 3) == _files(tmp_path / "alone", 3)


@pytest.mark.parametrize("layer", ["Python number", "plain tensor", "buffer anew", "expanded"])
def test_replicas_go_on_with_the_state_of_the_first(rank_pool: RankPool, tmp_path: Path, layer: str) -> None:
    _run(rank_pool, tmp_path / "straight", layer, 3, REPLICAS)
    _run(rank_pool, tmp_path / "stopped", layer, 2, REPLICAS)
    _run(rank_pool, tmp_path / "stopped", layer, 3, REPLICAS)
    assert _files(tmp_path / "stopped", 3) == _files(tmp_path / "straight", 3)
