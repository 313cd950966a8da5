import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import drivetrain
from drivetrain.catalogue.data_sets import default_augmentation
from drivetrain.cli.main import main
from drivetrain.store.directory import RunDirectory
from drivetrain.store.listing import describe_run, find_runs, folds_of
from drivetrain.store.lock import hold_lock
from tests.run.small_training import SMALL, TrainSmall, signal_after


@pytest.fixture
def runs(tmp_path: Path, train_small: TrainSmall) -> Path:
    train_small(tmp_path / "first", max_updates=6)
    with signal_after(2):
        train_small(tmp_path / "second", seed=5, learning_rate=0.02)
    return tmp_path


def test_runs_are_listed_with_their_state(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--runs-dir", str(runs), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [(Path(row["run"]).name, row["status"], row["update"]) for row in rows] == [
        ("first", "finished", 6),
        ("second", "stopped", 3),
    ]
    assert rows[0]["total_updates"] == 6
    assert rows[0]["metric"] == "accuracy"
    assert rows[0]["best_validation"] >= rows[0]["validation"]


def test_two_runs_are_compared_by_what_differs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(runs / "first"), str(runs / "second"), "--json"]) == 0
    differences = json.loads(capsys.readouterr().out)["differences"]
    assert differences["seed"] == [1, 5]
    assert differences["learning_rate"] == [None, 0.02]
    assert "model" not in differences
    assert main(["runs", str(runs / "first"), str(runs / "second")]) == 0
    shown = capsys.readouterr().out
    assert "--learning-rate" in shown
    assert "finished" in shown


def test_no_word_is_broken_at_80_columns(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long_name = "mask-folder-0123456789abcdef-second-trial"
    (runs / "second").rename(runs / long_name)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["runs", "--runs-dir", str(runs)]) == 0
    listed = capsys.readouterr().out
    assert main(["runs", str(runs / "first"), str(runs / long_name)]) == 0
    compared = capsys.readouterr().out
    assert all(len(line) <= 80 for line in (listed + compared).splitlines())
    assert {"first", long_name, "finished", "stopped", "6/6", "3/18", "validation"} <= set(listed.split())
    assert {"first", long_name, "--learning-rate", "0.02"} <= set(compared.split())


def test_no_runs_and_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--runs-dir", str(tmp_path)]) == 0
    assert "drivetrain train" in capsys.readouterr().out
    assert main(["runs", "--runs-dir", str(tmp_path / "absent")]) == 2
    assert main(["runs", str(tmp_path / "absent")]) == 2


def test_folds_of_a_cross_validation_are_runs(
    tmp_path: Path, train_small: TrainSmall, capsys: pytest.CaptureFixture[str]
) -> None:
    for fold in (10, 2):
        train_small(tmp_path / "job" / f"fold-{fold}", max_updates=2, seed=fold)
    (tmp_path / "job" / "fold-3").mkdir()
    shutil.copytree(tmp_path / "job" / "fold-2", tmp_path / "job" / "fold-2-old")
    assert main(["runs", "--runs-dir", str(tmp_path)]) == 0
    assert "no runs" in capsys.readouterr().out
    _write_record(tmp_path / "job", {"status": "unfinished", "folds": 11})
    assert main(["runs", "--runs-dir", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [Path(row["run"]).name for row in rows] == ["fold-10", "fold-2", "job"]
    assert main(["runs", str(tmp_path / "job"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [Path(row["run"]).name for row in found["runs"]] == ["fold-2", "fold-10", "job"]
    assert found["differences"]["seed"] == [2, 10, None]
    assert "model" not in found["differences"]


def _write_record(job: Path, record: dict[str, Any]) -> None:
    job.mkdir(exist_ok=True)
    (job / "crossval.json").write_text(json.dumps(record))


FINISHED = {
    "status": "finished",
    "folds": 3,
    "statistics": {
        "metric": "dice",
        "last": {"what": "", "dice": {"mean": 0.75}, "loss": {"mean": 9.0}},
        "best": {"what": "", "dice": {"mean": 0.875}, "loss": {"mean": 8.0}},
    },
}


def test_a_finished_cross_validation_is_listed_with_its_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_record(tmp_path / "job", FINISHED)
    (tmp_path / "job" / "crossval-recipe.yaml").write_text("model: unet\ndataset: synthetic-em\n")
    (row,) = [describe_run(run) for run in find_runs(tmp_path)]
    assert (row["status"], row["metric"]) == ("finished, 3 folds", "mean dice")
    assert (row["validation"], row["best_validation"]) == (0.75, 0.875)
    assert (row["model"], row["dataset"]) == ("unet", "synthetic-em")
    assert main(["runs", str(tmp_path / "job")]) == 0
    assert "0.75" in capsys.readouterr().out


@pytest.mark.parametrize("was_finished", [False, True])
def test_one_that_is_not_finished_says_how_many_folds_are(tmp_path: Path, was_finished: bool) -> None:
    """A job that goes on has no mean, whatever an earlier end of it came to."""
    _write_record(tmp_path / "job", FINISHED if was_finished else {"status": "unfinished", "folds": 3})
    for fold, event in enumerate(["summary", "summary", "train"]):
        (tmp_path / "job" / f"fold-{fold}").mkdir()
        (tmp_path / "job" / f"fold-{fold}" / "recipe.yaml").touch()
        (tmp_path / "job" / f"fold-{fold}" / "metrics.jsonl").write_text(json.dumps({"event": event}) + "\n")
    with hold_lock(tmp_path / "job"):
        running = describe_run(folds_of(tmp_path / "job")[-1])
    assert running["status"] == "running, 2 of 3 folds finished"
    assert running["validation"] is running["best_validation"] is running["metric"] is None
    stopped = describe_run(folds_of(tmp_path / "job")[-1])
    assert stopped["status"] == ("finished, 3 folds" if was_finished else "stopped, 2 of 3 folds finished")
    assert stopped["validation"] == (0.75 if was_finished else None)


def test_a_cross_validation_comes_after_its_folds_and_before_what_is_younger(tmp_path: Path) -> None:
    _write_record(tmp_path / "job", FINISHED)
    for when, name in enumerate(["older", "job/fold-1", "job/fold-0", "younger"], start=1):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").touch()
        os.utime(tmp_path / name / "recipe.yaml", (when, when))
    names = [run.path.name for run in find_runs(tmp_path)]
    assert names == ["older", "fold-1", "fold-0", "job", "younger"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"status": "finished", "folds": 3}'])
def test_a_damaged_record_says_so(tmp_path: Path, content: str) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "crossval.json").write_text(content)
    (row,) = [describe_run(run) for run in find_runs(tmp_path)]
    assert row["status"].startswith("unreadable: ")


def test_a_real_cross_validation_is_listed_with_the_mean_of_its_table(tmp_path: Path) -> None:
    result = drivetrain.crossval(
        quiet=True, output_dir=str(tmp_path / "job"), **{**SMALL, "folds": 2, "max_updates": 2}
    )
    assert result.statistics is not None
    *folds, job = (describe_run(run) for run in find_runs(tmp_path))
    assert job["validation"] == result.statistics.last["accuracy"].mean
    assert job["validation"] == pytest.approx(sum(fold["validation"] for fold in folds) / 2)
    assert job["status"] == "finished, 2 folds"
    assert job["model"] == folds[0]["model"]


def test_what_a_default_means_is_said(
    tmp_path: Path, train_small: TrainSmall, capsys: pytest.CaptureFixture[str]
) -> None:
    train_small(tmp_path / "plain", max_updates=1)
    train_small(tmp_path / "flipped", max_updates=1, augment=True, class_weights=("balanced",))
    assert main(["runs", str(tmp_path / "plain"), str(tmp_path / "flipped")]) == 0
    rows = {words[0]: words[1:] for line in capsys.readouterr().out.splitlines() if (words := line.split())}
    assert rows["--augment"] == ["default", "(False)", "True"]
    assert rows["--class-weights"] == ["default", "balanced"]


@pytest.mark.parametrize(
    ("dataset", "meant"),
    [("cifar10", "True"), ("digits", "False"), ("isbi2012", "flips"), ("my.data:load", "False")],
)
def test_the_default_augmentation_of_data_sets(dataset: str, meant: str) -> None:
    assert default_augmentation(dataset) == meant


def test_a_segmentation_is_listed_by_class_and_by_the_metric_that_chooses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    by_class = {"iou_cell": 0.5, "iou_back": 0.875, "soft_dice_cell": 0.625, "soft_dice_back": 0.75}
    for name, best_by in (("plain", ""), ("chosen", "best_by: iou_cell\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").write_text(f"model: unet\ndataset: synthetic-em\n{best_by}")
        event = {"event": "validation", "update": 1, "loss": 0.5, "dice": 0.6875, "iou": 0.6875, **by_class}
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(event) + "\n")
    plain, chosen = (describe_run(RunDirectory(tmp_path / name)) for name in ("plain", "chosen"))
    assert (plain["metric"], plain["validation"]) == ("dice", 0.6875)
    assert list(plain["by_class"].items()) == [("cell", 0.625), ("back", 0.75)]
    assert (chosen["metric"], chosen["validation"]) == ("iou_cell", 0.5)
    assert list(chosen["by_class"].items()) == [("cell", 0.5), ("back", 0.875)]
    assert main(["runs", "--runs-dir", "."]) == 0
    shown = capsys.readouterr().out
    assert "soft Dice (class mean)" in shown
    assert "IoU of cell" in shown
    assert "cell 0.625, back 0.750" in shown
