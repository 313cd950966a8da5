"""Run directories that earlier versions of the package have written are read, measured and continued."""

import json
import shutil
from pathlib import Path

import pytest

import drivetrain
from drivetrain.cli.main import main
from drivetrain.recipe.load import read_recipe_yaml
from drivetrain.recipe.schema import Recipe

OLD_RUNS = Path(__file__).parent / "old_runs"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Two stages, Adam, averaged weights, 8 updates in 2 epochs; before the schedule was called 1f1b."""
    return Path(shutil.copytree(OLD_RUNS / "digits-0.1.0", tmp_path / "digits"))


def _recipe_of(run: Path) -> Recipe:
    return Recipe.model_validate(read_recipe_yaml(run / "recipe.yaml"))


def test_its_recipe_is_understood(digits: Path) -> None:
    assert "pipeline_schedule: interleaved" in (digits / "recipe.yaml").read_text()
    recipe = _recipe_of(digits)
    assert (recipe.pipeline_schedule, recipe.stages, recipe.ema) == ("1f1b", 2, 0.9)


def test_it_is_measured_as_it_was_then(digits: Path) -> None:
    events = [json.loads(line) for line in (digits / "metrics.jsonl").read_text().splitlines()]
    then = [event for event in events if event["event"] == "validation"][-1]
    (found,) = drivetrain.evaluate(digits, device="cpu")
    assert found["update"] == 8
    assert found["accuracy"] == then["accuracy"]
    assert found["loss"] == pytest.approx(then["loss"], rel=1e-5)


@pytest.mark.usefixtures("no_pictures")
def test_it_goes_on_from_its_checkpoint(digits: Path) -> None:
    assert main(["train", f"--output-dir={digits}", "--num-epochs=3", "--stages=1"]) == 0
    trained = [json.loads(line) for line in (digits / "metrics.jsonl").read_text().splitlines()]
    assert {event["update"] for event in trained if event["event"] == "validation"} == {4, 8, 12}


def test_its_schedule_is_no_difference_from_a_new_run(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = Path(shutil.copytree(digits, tmp_path / "new"))
    recipe = new / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("interleaved", "1f1b").replace("seed: 3", "seed: 4"))
    assert main(["runs", str(digits), str(new)]) == 0
    printed = capsys.readouterr().out
    assert "--seed" in printed
    assert "--pipeline-schedule" not in printed


def test_a_damaged_one_is_not_taken_for_whole(digits: Path) -> None:
    weights = digits / "checkpoints" / "8" / "averaged.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(drivetrain.BadInputError, match="checkpoint"):
        drivetrain.evaluate(digits, device="cpu")
