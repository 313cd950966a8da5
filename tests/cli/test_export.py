"""`drivetrain export`, as a user calls it."""

import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_a_run_is_exported(tmp_path: Path, capsys: Capture) -> None:
    run = str(tmp_path / "run")
    small = ["--dataset=digits", "--limit-train-samples=16", "--micro-batch-size=8", "--num-epochs=1"]
    assert main(["train", *small, "--validation=False", "--num-threads=1", "--output-dir", run]) == 0
    capsys.readouterr()
    assert main(["export", run, "--format", "pt2", "--output", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "model.pt2: largest difference from the run's output" in shown
    assert (tmp_path / "out" / "export.json").is_file()
    assert main(["export", run, "--format", "tflite"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["export", run, "--tolerance", "-1"]) == 2
    assert "--tolerance 1e-4 works" in capsys.readouterr().err


def test_a_missing_run_is_refused_without_torch() -> None:
    code = (
        "import sys; from drivetrain.cli.main import main;"
        "assert main(['export', 'nowhere']) == 2; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
