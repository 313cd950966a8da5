"""A recipe is timed as one process, without what the timing must not do."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.auto.speed import _steady_seconds, one_training, sample_seconds
from drivetrain.console.reporter import Reporter
from drivetrain.plan.training_plan import plan_training
from drivetrain.recipe.schema import Recipe
from tests.data.folders import write_images


def test_replicas_folds_and_weights_are_left_out() -> None:
    asked = Recipe(replicas=4, dbn_replica_group_size=4, max_updates=3, folds=5, pretrained="weights")
    alone = asked.model_copy(update=one_training(asked))
    assert (alone.replicas, alone.dbn_replica_group_size, alone.max_updates) == (1, 1, None)
    assert (alone.folds, alone.fold, alone.pretrained) == (5, 0, False)
    chosen = Recipe(folds=5, fold=3)
    assert one_training(chosen)["fold"] == 3


@pytest.mark.parametrize("pace", [{"logs_per_epoch": "1/4"}, {"log_every": 7}, {"steps_per_execution": 7}])
def test_a_typed_pace_need_not_fit_the_length_that_is_timed(pace: dict[str, Any]) -> None:
    asked = Recipe(**pace)
    alone = asked.model_copy(update=one_training(asked))
    assert plan_training(alone, samples=64).events == plan_training(Recipe(), samples=64).events


def test_a_few_updates_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.auto.speed._ENOUGH_S", 0.0)
    folder = write_images(tmp_path / "photos", {"ant": 5, "bee": 5})
    recipe = Recipe(
        dataset="image-folder",
        data_dir=str(folder),
        image_size=8,
        micro_batch_size=4,
        device="cpu",
        num_threads=1,
    )
    assert 0.0 < sample_seconds(recipe, reporter=Reporter(quiet=True)) < 60.0
    assert [entry.name for entry in tmp_path.iterdir()] == ["photos"]


def test_slow_updates_end_the_timing_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    monkeypatch.setattr("drivetrain.auto.speed._LONGEST_S", 0.0)
    monkeypatch.setattr(
        "drivetrain.program.training_program.TrainingProgram.run_update",
        lambda _, number: runs.append(number),
    )
    folder = write_images(tmp_path / "photos", {"ant": 5, "bee": 5})
    recipe = Recipe(
        dataset="image-folder", data_dir=str(folder), image_size=8, micro_batch_size=4, device="cpu"
    )
    assert sample_seconds(recipe, reporter=Reporter(quiet=True)) >= 0.0
    assert runs == [0]


def test_the_lead_of_loader_workers_does_not_count() -> None:
    with_lead = [0.0] * 4 + [0.0, 3.0] * 4
    assert _steady_seconds(with_lead, ahead=4) == 1.5
    assert _steady_seconds(with_lead, ahead=0) == 0.0
    # Where all measured updates profit from the lead, the later half says most.
    assert _steady_seconds([0.0, 0.0, 2.0, 2.0], ahead=100) == 2.0
