"""The command as a person types it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drivetrain.cli.main import main
from tests.deadlines import HANG_S, wait_until

SMALL = [
    "--dataset",
    "digits",
    "--limit-train-samples",
    "64",
    "--limit-validation-samples",
    "20",
    "--micro-batch-size",
    "16",
    "--num-threads",
    "1",
]


def test_case_124_one_update_prints_loss_and_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "run")
    assert main(["train", *SMALL, "--output-dir", path, "--max-updates", "1"]) == 0
    shown = capsys.readouterr().out
    assert "loss: " in shown
    assert "training_accuracy: " in shown
    assert main(["train", *SMALL, "--output-dir", path, "--max-updates", "1", "--training", "False"]) == 0
    assert "validation_accuracy: " in capsys.readouterr().out


def test_a_bare_output_dir_continues_that_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "run")
    assert main(["train", *SMALL, "--output-dir", path, "--num-epochs", "2", "--lr-schedule", "const"]) == 0
    assert main(["train", "--output-dir", path]) == 0
    assert "is already finished: 8 updates" in capsys.readouterr().out
    assert main(["train", "--output-dir", path, "--num-epochs", "3"]) == 0
    assert "continuing after update 8" in capsys.readouterr().out


@pytest.mark.parametrize("replicas", ["1", "2"])
def test_the_time_counts_from_the_start_of_the_process(
    replicas: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.cli.train.process_began_s", lambda: time.time() - 3600.0)
    options = ["--max-time", "1h", "--num-epochs", "3", "--replicas", replicas, "--device", "cpu"]
    assert main(["train", *SMALL, *options, "--output-dir", str(tmp_path / "run")]) == 75


def test_the_default_directory_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *SMALL, "--max-updates", "2"]) == 0
    assert main(["train", *SMALL, "--max-updates", "2"]) == 0
    assert "is already finished" in capsys.readouterr().out
    assert main(["train", *SMALL, "--max-updates", "2", "--seed", "9"]) == 0
    names = [path.name for path in (tmp_path / "runs").iterdir()]
    assert len(names) == 2
    assert all(name.startswith("digits-cifar_resnet8-") for name in names)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--global-batch-size", "8", "--gradient-accumulation-count", "2"], "--global-batch-size"),
        (["--model", "cifar_resnet9"], "cifar_resnet8"),
        (["--dataset", "mnits"], "mnist"),
        (["--dataset", "mnist"], "--data-dir"),
        (["--logs-per-epoch", "-1"], "--logs-per-epoch"),
        (["--eight-bit-transfer"], "--accelerator-side-preprocess"),
        (["--micro-batch-size", "4000"], "--remainder pad"),
        (["--replicas", "3", "--dbn-replica-group-size", "2"], "--dbn-replica-group-size 1"),
        (["--device", "cuda:77"], "--device cpu"),
        (["--available-memory-proportion", "0.3"], "--available-memory-proportion"),
        (["--lr-schedule", "hygge"], "--lr-schedule"),
        (["--steps-per-execution", "3", "--gradient-accumulation-count", "2"], "--steps-per-execution"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_checkpoints_and_exits(tmp_path: Path, number: int, status: int) -> None:
    """The whole process group gets the signal, loader workers included, as a terminal sends it."""
    path = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "drivetrain",
        "train",
        *SMALL,
        "--output-dir",
        str(path),
        "--num-epochs",
        "100000",
        "--data-placement",
        "stream",
        "--num-workers",
        "1",
        "--checkpoint-every",
        "1000000",
    ]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        _wait_for(path / "metrics.jsonl")
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=HANG_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == status, errors.decode()
    assert b"Traceback" not in errors
    assert len(list((path / "checkpoints").iterdir())) >= 1


def _wait_for(path: Path) -> None:
    wait_until(lambda: path.is_file() and path.stat().st_size > 0, what=str(path))
