"""Runs of models that need torch's default memory format, from training to the exported file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import drivetrain
from drivetrain.cli.main import main
from tests.models.layout_models import PlainNet, StandardisedNet, ViewInEvaluation, ViewNet
from tests.run.rank_runs import weights

pytestmark = pytest.mark.usefixtures("no_pictures")

MODEL = "tests.models.layout_models:{}"
SMALL = [
    "--dataset=digits",
    "--limit-train-samples=32",
    "--limit-validation-samples=21",
    "--micro-batch-size=8",
    "--global-batch-size=16",
    "--num-epochs=100",
    "--lr-schedule=const",
    "--validation-micro-batch-size=7",
    "--device=cpu",
    "--compile=off",
]
FALLBACK = "runs in torch's default memory format, because channels_last fails"


def _train(run: Path, kind: str, *more: str) -> int:
    return main(["train", *SMALL, f"--model={MODEL.format(kind)}", f"--output-dir={run}", *more])


@pytest.mark.parametrize("kind", [ViewNet, StandardisedNet, ViewInEvaluation])
def test_a_run_trains_continues_measures_predicts_and_exports(
    kind: type[PlainNet], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert _train(run, kind.__name__, "--max-updates=2") == 0
    assert capfd.readouterr().out.count(FALLBACK) == 1
    assert _train(run, kind.__name__, "--max-updates=3") == 0
    measured = drivetrain.evaluate(run, quiet=True)
    assert measured == drivetrain.evaluate(run, model=kind(num_classes=10), quiet=True)
    Image.fromarray(np.eye(8, dtype=np.uint8) * 255).save(tmp_path / "line.png")
    (row,) = drivetrain.predict(run, tmp_path / "line.png", device="cpu")
    assert row["class"] in map(str, range(10))
    assert main(["export", str(run), "--format", "pt2"]) == 0
    # The same in one go, so nothing was lost in between.
    assert _train(tmp_path / "at once", kind.__name__, "--max-updates=3") == 0
    expected, found = weights(tmp_path / "at once"), weights(run)
    assert all(value.tobytes() == expected[name].tobytes() for name, value in found.items())


def test_formats_of_one_model_train_alike_but_are_not_the_same_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for word in ("contiguous", "channels_last"):
        assert _train(tmp_path / word, "PlainNet", "--max-updates=1", f"--memory-format={word}") == 0
        found[word] = weights(tmp_path / word)
    assert FALLBACK not in capfd.readouterr().out
    for name, value in found["contiguous"].items():
        np.testing.assert_allclose(value, found["channels_last"][name], rtol=1e-3, atol=1e-5)
    other = ("--max-updates=2", "--memory-format=channels_last")
    assert _train(tmp_path / "contiguous", "PlainNet", *other) == 2
    assert "give --memory-format contiguous" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["train", "plan", "verify"])
def test_channels_last_is_refused_before_anything_is_written(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = [*SMALL, f"--model={MODEL.format('ViewNet')}", "--memory-format=channels_last"]
    output = [f"--output-dir={tmp_path / 'run'}"] if command == "train" else []
    assert main([command, *arguments, *output]) == 2
    error = capfd.readouterr().err
    assert "--memory-format channels_last: --model cannot run in it: RuntimeError: view size is not" in error
    assert "layout_models.py line" in error
    assert "--memory-format contiguous works." in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [["plan"], ["plan", "--stages=2"], ["bench", "infer", "--steps=1", "--repeats=1"]],
    ids=" ".join,
)
def test_other_commands_say_it_too(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    model: list[Any] = ["--dataset=digits", f"--model={MODEL.format('ViewNet')}", "--device=cpu"]
    assert main([*command, *model, *(["--compile=off"] if command[0] == "bench" else [])]) == 0
    written = capfd.readouterr()
    assert FALLBACK in " ".join((written.out + written.err).split())
