"""`drivetrain runs` with conditions, an order, the best marked, and CSV."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three finished runs, of which the second is the best."""
    for name, seed, scores in (("one", 1, [0.5, 0.75]), ("two", 2, [0.875, 0.625]), ("three", 3, [0.25])):
        path = tmp_path / name
        path.mkdir()
        (path / "recipe.yaml").write_text(f"model: unet\ndataset: synthetic-em\nseed: {seed}\n")
        events: list[dict[str, Any]] = [
            {"event": "validation", "update": place, "dice": score, "loss": 1 - score}
            for place, score in enumerate(scores, start=1)
        ]
        events.append({"event": "summary", "update": len(scores), "elapsed_seconds": 5.0 * seed})
        (path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return tmp_path


def _names(capture: Capture) -> list[str]:
    rows = json.loads(capture.readouterr().out)["runs"]
    return [Path(row["run"]).name + ("*" if row["is_best"] else "") for row in rows]


def test_the_best_run_comes_first_and_is_marked(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["runs", "--runs-dir", str(folder), "--json"]
    assert main([*command, "--sort", "dice"]) == 0
    assert _names(capsys) == ["two*", "one", "three"]
    assert main([*command, "--sort", "dice", "--reverse", "--where", "seed<3"]) == 0
    assert _names(capsys) == ["one", "two*"]
    monkeypatch.chdir(folder)
    assert main(["runs", "--runs-dir", ".", "--sort", "loss"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:3] for line in lines[:3]] == [
        ["run", "loss", "status"],
        ["two", "*", "0.125"],
        ["one", "0.25", "finished"],
    ]
    assert lines[-1][:3] == ["*", "the", "best"]


def test_csv_has_every_metric_and_the_options_that_differ(folder: Path, capsys: Capture) -> None:
    command = ["runs", "--runs-dir", str(folder), "--sort", "seed", "--csv"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(shown)))
    assert [Path(row["run"]).name for row in rows] == ["one", "two", "three"]
    assert [row["best_dice"] for row in rows] == ["0.75", "0.875", "0.25"]
    assert [row["best_loss"] for row in rows] == ["0.25", "0.125", "0.75"]
    assert [row["is_best"] for row in rows] == ["False", "True", "False"]
    assert [row["--seed"] for row in rows] == ["1", "2", "3"]
    assert "--model" not in rows[0]
    assert main([*command, str(folder / "table.csv")]) == 0
    assert (folder / "table.csv").read_text() == shown
    assert capsys.readouterr().out == ""


def test_a_file_that_cannot_be_written(folder: Path, capsys: Capture) -> None:
    for path in (folder, folder / "missing" / "table.csv"):
        assert main(["runs", "--runs-dir", str(folder), "--csv", str(path)]) == 2
        assert "--csv runs.csv" in capsys.readouterr().err
    assert main(["runs", "--runs-dir", str(folder), "--csv", "--json"]) == 2


def test_no_run_meets_the_condition(folder: Path, capsys: Capture) -> None:
    assert main(["runs", "--runs-dir", str(folder), "--where", "dice>0.9", "--where", "seed=1"]) == 0
    assert capsys.readouterr().out == "none of 3 runs meets --where dice>0.9 --where seed=1\n"
    assert main(["runs", "--runs-dir", str(folder), "--where", "sead=1"]) == 2
    assert "Did you mean seed" in capsys.readouterr().err
