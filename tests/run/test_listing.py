import json
import shutil
from pathlib import Path

import pytest

from drivetrain.cli.main import main

from .conftest import TrainSmall, signal_after


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
    (tmp_path / "job" / "crossval.json").write_text("{}")
    assert main(["runs", "--runs-dir", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [Path(row["run"]).name for row in rows] == ["fold-10", "fold-2"]
    assert main(["runs", str(tmp_path / "job"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [Path(row["run"]).name for row in found["runs"]] == ["fold-2", "fold-10"]
    assert found["differences"]["seed"] == [2, 10]
