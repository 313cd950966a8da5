"""`drivetrain crossval` as a person types it."""

import time
from pathlib import Path

import pytest

from drivetrain.cli.main import main

SMALL = [
    "--dataset",
    "digits",
    "--limit-train-samples",
    "48",
    "--limit-validation-samples",
    "20",
    "--micro-batch-size",
    "16",
    "--num-threads",
    "1",
    "--num-epochs",
    "1",
]


def test_a_table_at_the_end_and_the_same_command_says_it_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["crossval", *SMALL, "--folds", "2"]) == 0
    shown = capsys.readouterr().out
    assert "fold 0 (1 of 2)\n" in shown
    assert "standard deviation" in shown
    assert "validation_accuracy over 2 folds: " in shown
    (job,) = (tmp_path / "runs").iterdir()
    assert job.name.startswith("crossval-digits-cifar_resnet8-")
    assert main(["crossval", *SMALL, "--folds", "2"]) == 0
    assert f"{job.relative_to(tmp_path)} is already finished" in capsys.readouterr().out
    assert main(["crossval", "--output-dir", str(job)]) == 0
    assert "is already finished" in capsys.readouterr().out


def test_the_time_counts_from_the_start_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.cli.crossval.process_began_s", lambda: time.time() - 3600.0)
    options = ["--max-time", "1h", "--folds", "2", "--output-dir", str(tmp_path / "job")]
    assert main(["crossval", *SMALL, *options]) == 75


def test_quiet_prints_the_results_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--folds", "2", "--output-dir", str(tmp_path / "job"), "--verbosity", "quiet"]
    assert main(["crossval", *SMALL, *arguments]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("warning: ")]
    assert all(line.startswith("validation_accuracy") for line in lines)
    assert lines[-1].startswith("validation_accuracy over 2 folds: ")


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("crossval", [], "--folds 5"),
        ("crossval", ["--folds", "1"], "--folds"),
        ("crossval", ["--folds", "3", "--fold", "0"], "--fold 0 has no effect"),
        ("crossval", ["--folds", "3", "--validation-fraction", "0.2"], "--validation-fraction 0.2"),
        ("train", ["--folds", "3"], "--fold 0"),
        ("train", ["--folds", "3", "--fold", "3"], "--fold 2 works"),
        ("train", ["--fold", "3"], "add --folds"),
        ("train", ["--verbosity", "loud"], "--verbosity"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    command: str,
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_plan_with_folds_needs_no_fold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--measure", "off", "--dataset", "digits", "--folds", "3", "--json"]) == 0
    assert '"samples": 1198' in capsys.readouterr().out
