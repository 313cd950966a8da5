"""What a run with stages hands over when nothing is left to train, and how it measures."""

import json
from pathlib import Path
from typing import Any

import pytest

import drivetrain
from drivetrain.pipeline.cutting import stage_plan
from drivetrain.ranks.pool import RankPool
from tests.run.rank_runs import SMALL, Ending, train_rank


def _first_of_two_stages(pool: RankPool, path: Path, **options: Any) -> Ending:
    endings: list[Ending] = pool.run(train_rank, str(path), {"replicas": 1, "stages": 2, **options}, ranks=2)
    return endings[0]


@pytest.mark.parametrize("options", [{}, {"ema": 0.9}], ids=["plain", "averaged"])
def test_a_finished_run_gives_its_trained_model_again(
    rank_pool: RankPool, tmp_path: Path, options: dict[str, Any]
) -> None:
    trained = _first_of_two_stages(rank_pool, tmp_path / "run", **options)
    assert trained[0] == "finished"
    again = _first_of_two_stages(rank_pool, tmp_path / "run", **options)
    validated = _first_of_two_stages(rank_pool, tmp_path / "run", training=False, **options)
    assert again == trained
    assert validated[0] == "validated"
    assert validated[-1] == trained[-1]
    other = _first_of_two_stages(rank_pool, tmp_path / "other", seed=2, **options)
    assert other[-1] != trained[-1]


def _validation_loss(path: Path) -> float:
    events = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return float([event for event in events if event["event"] == "validation"][-1]["loss"])


def test_stages_measure_in_the_precision_they_train_in(tmp_path: Path) -> None:
    options = {**SMALL, "stages": 2, "device_mapping": [0, 0], "num_epochs": 1}
    mixed = [{"stage": 1, "precision": "16.32"}]
    result = drivetrain.train(
        **options, stage_options=mixed, precision="32.32", output_dir=tmp_path / "mixed", quiet=True
    )
    (row,) = drivetrain.evaluate(result.directory)
    assert row["loss"] == _validation_loss(tmp_path / "mixed")
    recipe = result.directory / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("16.32", "32.32"))
    (whole,) = drivetrain.evaluate(result.directory)
    assert whole["loss"] != row["loss"]


def test_a_measured_cut_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {**SMALL, "stages": 2, "device_mapping": [0, 0], "split_by": "time"}
    options |= {"output_dir": tmp_path / "run", "quiet": True}
    drivetrain.train(**options, max_updates=1)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(stage_plan, "measure_layer_seconds", fail)
    assert drivetrain.train(**options, max_updates=2).updates == 2
    with pytest.raises(AssertionError, match="measured again"):
        drivetrain.train(**options, max_updates=2, overwrite=True)
