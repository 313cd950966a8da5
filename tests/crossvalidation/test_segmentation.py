"""Cross-validation of a segmentation."""

import csv
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drivetrain
from drivetrain.core.errors import BadInputError
from drivetrain.crossvalidation import pages as crossval_pages
from drivetrain.inference.evaluate.evaluation_files import write_evaluation
from drivetrain.run.summary import finish
from tests.run.segments import SEGMENT
from tests.run.small_training import final_files, signal_after
from tests.run.stopping import result_of


@pytest.fixture
def tables_alone(no_pictures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are left out, but the tables by image say which images a fold validated on."""
    monkeypatch.setattr(finish, "write_evaluation", write_evaluation)
    monkeypatch.setattr(crossval_pages, "_draw_curves", lambda *arguments: None)


def _cross(path: Path, **options: Any) -> drivetrain.CrossvalResult:
    small = {**SEGMENT, "folds": 3, "num_epochs": 2, **options}
    return result_of(drivetrain.crossval, quiet=True, output_dir=str(path), **small)


def _validated(job: Path, fold: int) -> list[str]:
    with (job / f"fold-{fold}" / "images.csv").open() as file:
        return [row["image"] for row in csv.DictReader(file)]


@pytest.mark.usefixtures("no_pictures")
def test_a_table_with_mean_and_deviation_of_dice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "write_evaluation", write_evaluation)
    result = _cross(tmp_path / "job")
    assert (result.status, len(result.folds)) == ("finished", 3)
    record = json.loads((tmp_path / "job" / "crossval.json").read_text())
    assert record["statistics"]["metric"] == "dice"
    dices = [[point["dice"] for point in fold["evaluations"]] for fold in record["per_fold"]]
    assert [len(points) for points in dices] == [2, 2, 2]
    for when, values in (("last", [p[-1] for p in dices]), ("best", [max(p) for p in dices])):
        found = record["statistics"][when]["dice"]
        assert found["mean"] == pytest.approx(np.mean(values))
        assert found["standard_deviation"] == pytest.approx(np.std(values, ddof=1))
    rows = list(csv.DictReader((tmp_path / "job" / "crossval.csv").open()))
    assert [row["fold"] for row in rows] == ["0", "1", "2", "mean", "standard_deviation"]
    assert {"last_dice", "best_dice", "last_iou", "last_hard_dice", "best_update"} <= set(rows[0])
    assert (tmp_path / "job" / "curves.png").is_file()
    validated = [name for fold in range(3) for name in _validated(tmp_path / "job", fold)]
    assert sorted(validated) == sorted(f"synthetic-em train {index}" for index in range(12))


@pytest.mark.usefixtures("tables_alone")
def test_region_scores_are_in_the_table_at_the_last_evaluation(tmp_path: Path) -> None:
    """They are computed at the end of each fold alone, so that no best evaluation has them."""
    result = _cross(tmp_path / "job", folds=2)
    assert result.statistics is not None
    last = [fold.evaluations[-1] for fold in result.folds]
    for name in ("v_rand", "v_info"):
        assert result.statistics.last[name].mean == pytest.approx(np.mean([fold[name] for fold in last]))
        assert name not in result.statistics.best
    rows = list(csv.DictReader((tmp_path / "job" / "crossval.csv").open()))
    assert float(rows[0]["last_v_rand"]) == last[0]["v_rand"]
    assert "best_v_rand" not in rows[0]


@pytest.mark.usefixtures("tables_alone")
def test_a_stopped_job_continues_with_the_fold_it_was_in(tmp_path: Path) -> None:
    options = {"model_params": {"depth": 1, "norm": "batch"}, "augment": True, "folds": 2}
    _cross(tmp_path / "straight", **options)
    with signal_after(1, signal.SIGINT):
        stopped = _cross(tmp_path / "job", **options)
    assert (stopped.status, stopped.exit_status) == ("stopped", 130)
    assert not (tmp_path / "job" / "fold-1").exists()
    assert _cross(tmp_path / "job", **options).status == "finished"
    for fold in ("fold-0", "fold-1"):
        assert final_files(tmp_path / "job" / fold) == final_files(tmp_path / "straight" / fold)


@pytest.mark.usefixtures("tables_alone")
@pytest.mark.parametrize(("scheme", "each", "together"), [("graphcore", 2, 10), ("nvidia", 2, 6)])
def test_published_schemes(tmp_path: Path, scheme: str, each: int, together: int) -> None:
    """nvidia's folds of 10 images turn by one where two validate, so that they overlap."""
    _cross(
        tmp_path / "job",
        dataset_size=10,
        folds=5,
        fold_scheme=scheme,
        max_updates=1,
        num_epochs=1,
        micro_batch_size=2,
    )
    validated = [_validated(tmp_path / "job", fold) for fold in range(5)]
    assert [len(names) for names in validated] == [each] * 5
    assert len({name for names in validated for name in names}) == together


@pytest.mark.usefixtures("tables_alone")
def test_tiles_and_folds(tmp_path: Path) -> None:
    result = _cross(
        tmp_path / "job",
        image_size=None,
        tile_size=24,
        dataset_size=4,
        folds=2,
        max_updates=1,
        micro_batch_size=2,
        num_workers=0,
    )
    assert result.statistics is not None
    assert 0 < result.statistics.last["dice"].mean < 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"folds": 13}, "--folds 13 is more than the 12 training samples; --folds 12 works"),
        ({"fold_scheme": "habana"}, "--folds 3 is impossible with --fold-scheme habana, .*--folds 5 works"),
        ({"fold": 1}, "--fold 1 has no effect in crossval"),
    ],
)
def test_folds_that_cannot_be_cut_write_nothing(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        _cross(tmp_path / "job", **options)
    assert list(tmp_path.iterdir()) == []
