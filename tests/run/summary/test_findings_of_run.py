"""A run says what stands out: on the terminal, in its page and in its events."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import drivetrain
from drivetrain.cli.main import main
from tests.number_data import Perceptron, table


def _train(directory: Path, labels: np.ndarray[Any, Any], **options: Any) -> list[str]:
    """Trains on the table with these labels; the findings of its summary event."""
    result = drivetrain.train(
        model=Perceptron(),
        data=(table(160)[0], labels),
        validation_fraction=0.5,
        micro_batch_size=8,
        num_epochs=20,
        device="cpu",
        compile="off",
        output_dir=str(directory),
        **options,
    )
    summary = json.loads((directory / "metrics.jsonl").read_text().splitlines()[-1])
    assert result.metrics.get("findings") == summary.get("findings")
    found: list[str] = summary.get("findings", [])
    return found


def test_a_healthy_run_has_nothing_to_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train(tmp_path / "run", table(160)[1]) == []
    assert "finding:" not in capsys.readouterr().out
    assert "What stands out" not in (tmp_path / "run" / "README.md").read_text()


def test_labels_that_belong_to_nothing_are_said_in_all_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = np.random.default_rng(1).permutation(table(160)[1])
    found = _train(tmp_path / "run", labels)
    assert found
    page = (tmp_path / "run" / "README.md").read_text().partition("What stands out:\n")[2]
    printed = capsys.readouterr().out
    for finding in found:
        assert f"finding: {finding}" in printed
        assert f"- {finding}\n" in page


def test_quiet_runs_keep_them_in_their_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = np.random.default_rng(1).permutation(table(160)[1])
    found = _train(tmp_path / "run", labels, verbosity="quiet")
    assert "finding:" not in capsys.readouterr().out
    assert found[0] in (tmp_path / "run" / "rank-0.log").read_text()


def _folder(path: Path) -> None:
    """Dark and bright images; the brightest one for validation lies among the dark ones."""
    draws = np.random.default_rng(0)
    for split, count in (("train", 24), ("val", 30)):
        for name, level in (("dark", 40), ("bright", 200)):
            (path / split / name).mkdir(parents=True)
            for number in range(count):
                shown = 255 if (split, name, number) == ("val", "bright", 0) else level
                pixels = np.clip(draws.normal(shown, 20, (12, 12, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(path / split / name / f"{number}.png")
    (path / "val" / "bright" / "0.png").rename(path / "val" / "dark" / "wrong.png")


def test_a_file_in_the_wrong_folder_is_found_by_train_and_by_evaluate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _folder(tmp_path / "photos")
    options = ["--dataset", "image-folder", "--data-dir", str(tmp_path / "photos"), "--image-size", "12"]
    options += ["--model", "cifar_resnet8", "--num-epochs", "8", "--micro-batch-size", "8"]
    options += ["--learning-rate", "0.01", "--bn-momentum", "0.7", "--auto", "off", "--compile", "off"]
    assert main(["train", *options, "--device", "cpu", "--output-dir", str(tmp_path / "run")]) == 0
    wrong = f"{tmp_path / 'photos' / 'val' / 'dark' / 'wrong.png'} is predicted as bright with "
    assert f"finding: A label may be wrong: {wrong}" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "run"), "--device", "cpu", "--compile", "off"]) == 0
    assert f"finding: A label may be wrong: {wrong}" in capsys.readouterr().out
    stored = json.loads((tmp_path / "run" / "evaluation-validation.json").read_text())
    assert wrong in stored["evaluations"][-1]["findings"][0]
