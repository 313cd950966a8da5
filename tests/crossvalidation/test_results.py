"""What the folds of a cross-validation came to together."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.crossvalidation.results import FoldResult, read_fold, summarise
from drivetrain.store.directory import RunDirectory


def _fold_result(fold: int, accuracies: list[float]) -> FoldResult:
    evaluations = tuple({"loss": 1 - value, "accuracy": value} for value in accuracies)
    updates = tuple(10 * (point + 1) for point in range(len(accuracies)))
    return FoldResult(fold=fold, updates=updates, evaluations=evaluations)


def test_means_and_deviations_at_the_last_at_the_best_and_at_every_point() -> None:
    folds = [_fold_result(0, [0.5, 0.9, 0.7]), _fold_result(1, [0.7, 0.8, 0.9])]
    found = summarise(folds)
    assert found.metric == "accuracy"
    last, best = np.array([0.7, 0.9]), np.array([0.9, 0.9])
    assert found.last["accuracy"].mean == pytest.approx(last.mean())
    assert found.last["accuracy"].standard_deviation == pytest.approx(last.std(ddof=1))
    assert found.best["accuracy"].mean == pytest.approx(best.mean())
    assert found.best["loss"].standard_deviation == pytest.approx(0)
    assert [point["accuracy"].mean for point in found.points] == pytest.approx([0.6, 0.85, 0.8])
    assert found.best_point == 1
    plain = found.to_json()
    assert plain["best_point"]["accuracy"]["mean"] == pytest.approx(0.85)
    assert "last validation" in plain["last"]["what"]
    assert plain["points"]["accuracy"]["mean"] == pytest.approx([0.6, 0.85, 0.8])


def test_negative_control_the_deviation_is_that_of_a_sample() -> None:
    found = summarise([_fold_result(0, [0.0]), _fold_result(1, [1.0])])
    assert found.last["accuracy"].standard_deviation != pytest.approx(np.std([0.0, 1.0]))


def test_points_that_not_all_folds_reached_are_left_out_of_the_vector() -> None:
    found = summarise([_fold_result(0, [0.1, 0.2, 0.3]), _fold_result(1, [0.4, 0.5])])
    assert len(found.points) == 2
    assert found.last["accuracy"].mean == pytest.approx(0.4)


def test_any_tasks_metrics_are_read(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [
        {"event": "train", "update": 1, "loss": 9.0},
        {"event": "validation", "time": "x", "update": 1, "epoch": 1, "loss": 0.5, "dice": 0.3, "iou": None},
        {"event": "validation", "time": "x", "update": 2, "epoch": 1, "loss": 0.4, "dice": 0.6, "iou": 0.2},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    fold = read_fold(RunDirectory(tmp_path), fold=0)
    assert fold.updates == (1, 2)
    assert fold.evaluations == ({"loss": 0.5, "dice": 0.3}, {"loss": 0.4, "dice": 0.6})
    assert summarise([fold, fold]).metric == "dice"


def test_a_loss_alone_is_best_where_it_is_lowest() -> None:
    fold = FoldResult(fold=0, updates=(1, 2), evaluations=({"loss": 0.2}, {"loss": 0.4}))
    assert summarise([fold, fold]).best["loss"].mean == pytest.approx(0.2)
