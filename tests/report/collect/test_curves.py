"""The charts of a run, from the record of each update and from its events."""

from pathlib import Path
from typing import Any

import numpy as np

from drivetrain.report.collect.curves import curves_of
from drivetrain.report.collect.stored_run import read_run
from drivetrain.report.contents import Curve
from drivetrain.store.update_history import write_history
from tests.report.collect.fabricated import (
    classifier,
    pipelined_segmentation,
    train_event,
    validation_event,
    write_events,
)


def _curves(path: Path) -> dict[str, Curve]:
    return {curve["id"]: curve for curve in curves_of(read_run(path), max_points=2000)}


def _points(curve: Curve) -> dict[str, int]:
    return {series["name"]: len(series["x"]) for series in curve["series"]}


def test_a_classifier_has_loss_metric_rate_and_throughput(tmp_path: Path) -> None:
    curves = _curves(classifier(tmp_path / "run"))
    assert list(curves) == ["loss", "accuracy", "learning_rate", "images_per_second"]
    each = {"training, each update": 20, "training, mean since the last log": 2, "validation": 2}
    assert _points(curves["loss"]) == _points(curves["accuracy"]) == each
    assert _points(curves["learning_rate"]) == {"training, each update": 20}
    assert [curve["lower_is_better"] for curve in curves.values()] == [True, False, None, None]
    assert curves["images_per_second"]["unit"] == "images/s"
    assert curves["loss"]["series"][2] == {"name": "validation", "x": [10, 20], "y": [0.6, 0.7]}


def test_scores_of_classes_are_drawn_with_their_mean(tmp_path: Path) -> None:
    curves = _curves(pipelined_segmentation(tmp_path / "run"))
    assert list(curves) == ["loss", "dice", "pixel_accuracy", "learning_rate", "images_per_second"]
    assert curves["dice"]["title"] == "soft Dice"
    assert _points(curves["dice"]) == {
        "training": 1,
        "validation": 1,
        "validation, cell": 1,
        "validation, membrane": 1,
    }


def test_of_many_classes_the_lowest_are_drawn(tmp_path: Path) -> None:
    path = pipelined_segmentation(tmp_path / "run")
    scores: dict[str, Any] = {f"iou_{index}": index / 30 for index in range(30)}
    write_events(path, [validation_event(4, loss=0.6, iou=0.5, **scores)])
    names = list(_points(_curves(path)["iou"]))
    assert names == ["validation", *(f"validation, {index} (among the lowest)" for index in range(8))]


def test_a_run_that_goes_on_is_drawn_beyond_its_last_checkpoint(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    logs = [train_event(update, loss=0.5, accuracy=0.5) for update in range(1, 31)]
    write_events(path, logs)
    assert _points(_curves(path)["learning_rate"]) == {"training, each update": 20, "training, logs": 30}
    write_events(path, logs[:20])
    assert _points(_curves(path)["loss"]) == {"training, each update": 20}


def test_a_run_without_a_record_is_drawn_from_its_logs(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    (path / "updates.npz").unlink()
    assert _points(_curves(path)["loss"]) == {"training": 2, "validation": 2}


def test_other_records_are_charts_of_their_own(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    write_history(path / "updates.npz", {"loss": np.ones(20), "loss_scale": np.full(20, 128.0)})
    assert _curves(path)["loss_scale"]["title"] == "loss scale"


def test_a_value_that_is_no_number_is_not_drawn(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    write_events(path, [validation_event(4, loss=0.6, note="text", nested={"a": 1})])
    assert "note" not in _curves(path)
    assert "nested" not in _curves(path)
