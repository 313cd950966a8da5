"""A folder alone: what `train DIR`, `plan DIR` and `data look DIR` do with it."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torch import nn

from drivetrain.api import make_plan
from drivetrain.auto.configure import Rules
from drivetrain.cli.main import main
from drivetrain.cli.options import (
    OneSentenceParser,
    add_directory,
    add_recipe_options,
    continued_recipe,
    take_directory,
)
from drivetrain.core.errors import BadInputError
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.recipe.fields import option_name
from drivetrain.recipe.load import read_recipe_yaml, recipe_to_yaml, resolve_recipe
from drivetrain.recipe.schema import Recipe
from drivetrain.run.session import RunResult
from drivetrain.store.crossval_directory import CrossvalDirectory
from tests.data.folders import write_images

Captured = pytest.CaptureFixture[str]
FOUND = "photos holds 24 images of 3 classes (ant, bee, cat), from class folders."
HERE = ["--device", "cpu", "--num-threads", "1"]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of 24 small images; the current folder is the one above it."""
    monkeypatch.chdir(tmp_path)
    return write_images(tmp_path / "photos", {"ant": 8, "bee": 8, "cat": 8}, sizes=((16, 16),))


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were timed, each with a thousandth of a second for a sample."""
    models: list[str] = []

    def sample_seconds(recipe: Recipe, **_: Any) -> float:
        models.append(recipe.model)
        return 1e-3

    monkeypatch.setattr("drivetrain.auto.choose.sample_seconds", sample_seconds)
    return models


def test_a_folder_trains_and_the_same_command_goes_on(
    photos: Path, timed: list[str], capsys: Captured
) -> None:
    command = ["train", "photos", "--budget", "10s", "--max-updates", "4", *HERE]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{FOUND}\n")
    assert "chosen from your data: --model cifar_resnet20" in shown
    (run,) = (photos.parent / "runs").iterdir()
    assert run.name.startswith("photos-")
    found = Fingerprint.from_json(json.loads((run / "fingerprint.json").read_text()))
    assert (found.samples, found.class_counts) == ({"train": 24}, (8, 8, 8))
    plan = json.loads((run / "plan.json").read_text())
    assert plan["chosen_by_rules"]["num_epochs"] == "the epochs that --max-updates 4 takes"
    recipe = read_recipe_yaml(run / "recipe.yaml")
    assert (recipe["budget"], recipe["max_updates"], recipe["model"]) == ("10s", 4, "cifar_resnet20")
    assert "\n# the epochs that --max-updates 4 takes\nnum_epochs: 2\n" in (run / "recipe.yaml").read_text()
    measured = len(timed)
    assert measured > 0
    assert main(command) == 0
    assert "is already finished: 4 updates" in capsys.readouterr().out
    longer = [*command, "--max-updates", "5", "--num-epochs", "3"]
    assert main(longer) == 0
    assert "continuing after update 4" in capsys.readouterr().out
    assert len(timed) == measured
    assert json.loads((run / "plan.json").read_text())["chosen_by_rules"] == plan["chosen_by_rules"]
    assert [*(photos.parent / "runs").iterdir()] == [run]


def test_the_launching_process_alone_chooses(
    photos: Path, timed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[Recipe] = []

    def launch(resolved: Any, **_: Any) -> RunResult:
        launched.append(resolved.recipe)
        return RunResult(directory=photos, status="finished", updates=1, metrics={}, model=nn.Module())

    monkeypatch.setattr("drivetrain.run.start.launch_training", launch)
    assert main(["train", "photos", "--replicas", "2", *HERE]) == 0
    (recipe,) = launched
    assert (recipe.replicas, recipe.model) == (2, "cifar_resnet20")
    assert recipe.micro_batch_size * 2 == recipe.global_batch_size == 8


def test_ranks_of_another_launcher_are_told_to_let_one_choose(
    photos: Path, timed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    for name, value in zip(names, ("0", "0", "2", "2", "127.0.0.1", "29999"), strict=True):
        monkeypatch.setenv(name, value)
    assert main(["train", "photos"]) == 2
    said = capsys.readouterr().err
    assert "`drivetrain plan photos --replicas 2 --save-recipe recipe.yaml`" in said
    assert timed == []
    assert not (photos.parent / "runs").exists()


@pytest.mark.parametrize("asked", [["--budget", "10s"], ["--auto", "on"]])
def test_a_run_is_continued_by_its_directory_and_what_was_typed_for_it(
    photos: Path, timed: list[str], monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    args = _train_args("photos", "--output-dir", "runs/mine", *asked)
    rules = Rules(stored_recipe=lambda path: path / "recipe.yaml" if path.is_dir() else None)
    begun = continued_recipe(args, rules=rules)
    measured = len(timed)
    assert measured > 0
    run = photos.parent / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text(recipe_to_yaml(begun.recipe))
    again = _train_args("--output-dir", "runs/mine", *asked)
    assert continued_recipe(again, rules=rules).recipe == begun.recipe
    assert len(timed) == measured
    with pytest.raises(BadInputError, match="has options of its own"):
        continued_recipe(_train_args("--output-dir", "runs/other", "--budget", "10s"), rules=rules)


def _train_args(*argv: str) -> argparse.Namespace:
    parser = OneSentenceParser(prog="drivetrain train")
    add_directory(parser)
    add_recipe_options(parser)
    args = parser.parse_args(argv)
    take_directory(args)
    return args


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["crossval", "photos"], "--folds 5 works"),
        (["train", "photos", "--folds", "5"], "--folds 5 needs the fold to validate on"),
        (["train", "photos", "--parallel-folds", "2"], "--parallel-folds 2 is only for crossval"),
    ],
)
def test_folds_that_are_missing_are_missed_before_anything_is_measured(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, command: list[str], said: str
) -> None:
    monkeypatch.setattr("drivetrain.auto.choose.choose_by_rules", pytest.fail)
    assert main([*command, *HERE]) == 2
    assert said in capsys.readouterr().err


def test_a_plan_of_folds_divides_the_budget(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    left_s: list[float] = []

    def choose(*_: Any, **asked: Any) -> None:
        left_s.append(asked["left_s"]())
        raise BadInputError("that was all")

    monkeypatch.setattr("drivetrain.auto.choose.choose_by_rules", choose)
    for options in (["--folds", "5"], []):
        assert main(["plan", "--measure", "off", "photos", "--budget", "10000s", *options]) == 2
    assert 1000 < left_s[0] < 2000
    assert 5000 < left_s[1] < 10_000


def test_a_plan_in_python_opens_a_folder_too(photos: Path, capsys: Captured) -> None:
    own: dict[str, Any] = {"dataset": "image-folder", "data_dir": "photos", "auto": "off"}
    own |= {"micro_batch_size": "8", "image_size": "32"}
    plan = make_plan(**own)
    assert plan["epoch"]["samples"] == 19
    words = [word for name, value in own.items() for word in (option_name(name), value)]
    assert main(["plan", "--measure", "off", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out) == plan


def test_plan_says_what_was_chosen_and_why(photos: Path, timed: list[str], capsys: Captured) -> None:
    assert main(["plan", "--measure", "off", "photos", "--json", *HERE]) == 0
    plan = json.loads(capsys.readouterr().out)
    choices = {choice["option"]: choice for choice in plan["choices"]}
    assert set(choices) >= {"--model", "--precision", "--compile", "--micro-batch-size", "--normalisation"}
    assert all(choice["reason"] for choice in choices.values())
    assert plan["notes"] == [FOUND]
    assert plan["fingerprint"]["samples"] == {"train": 24}
    assert plan["epoch"]["samples"] == 19
    assert main(["plan", "--measure", "off", "photos", *HERE]) == 0
    shown = capsys.readouterr().out
    assert FOUND in shown
    assert "because" in shown
    assert [entry.name for entry in photos.parent.iterdir()] == ["photos"]


def test_the_saved_recipe_is_the_one_that_was_chosen(
    photos: Path, timed: list[str], capsys: Captured
) -> None:
    assert (
        main(["plan", "--measure", "off", "photos", "--save-recipe", "mine.yaml", "--seed", "3", *HERE]) == 0
    )
    written = photos.parent / "mine.yaml"
    capsys.readouterr()
    timed.clear()
    assert main(["plan", "--measure", "off", "--config-path", "mine.yaml", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["epoch"]["samples"] == 19
    recipe = resolve_recipe(config_path=written).recipe
    assert (recipe.seed, recipe.data_dir) == (3, "photos")
    assert timed == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "photos", "--save-recipe", "photos"], "--save-recipe photos exists already"),
        (["plan", "photos", "--save-recipe", "no/x.yaml"], "no is not a folder"),
        (["train", "photos", "--data-dir", "photos"], "--data-dir photos and DIR photos both name a folder"),
        (["plan", "photos", "--dataset-path", "photos"], "--dataset-path photos and DIR photos both name"),
        (["crossval", "photos", "--data-dir", "photos"], "--data-dir photos and DIR photos both name"),
        (
            ["train", "photos", "--budget", "long"],
            "--budget long is neither quick, normal or best nor a duration",
        ),
        (["train", "photos", "--budget", "3s"], "--budget 3s is too short"),
        (["train", "photos", "--auto", "off", "--budget", "10m"], "--budget 10m has no effect: --auto off"),
        (["train", "--config", "digits", "--budget", "10m"], "--budget 10m has no effect: the recipe that"),
        (["data", "look", "photos", "--output", "x.jpg"], "--output x.jpg is not a PNG file"),
        (["data", "look", "photos", "--output", "no/x.png"], "no is not a folder"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    words: list[str], said: str, photos: Path, timed: list[str], capsys: Captured
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert [entry.name for entry in photos.parent.iterdir()] == ["photos"]


def test_data_look_prints_and_draws(photos: Path, capsys: Captured) -> None:
    assert main(["data", "look", "photos"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{FOUND}\nsamples: 24 train (24 training samples measured)\n")
    assert "images: height 16, width 16 pixels, 3 channels of 8 bits\n" in shown
    assert shown.endswith("picture: photos-look.png\n")
    assert Image.open("photos-look.png").format == "PNG"


def test_data_look_as_json(photos: Path, capsys: Captured) -> None:
    assert main(["data", "look", "photos", "--json", "--output", "picture.png"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert (written.pop("found"), written.pop("left_out")) == (FOUND, [])
    assert Fingerprint.from_json(written).class_names == ("ant", "bee", "cat")


def test_folds_share_what_was_chosen(photos: Path, timed: list[str], capsys: Captured) -> None:
    command = ["crossval", "photos", "--folds", "2", "--max-updates", "1", *HERE]
    assert main(command) == 0
    (job,) = (photos.parent / "runs").iterdir()
    recipe = read_recipe_yaml(CrossvalDirectory(job).recipe)
    assert (recipe["model"], recipe["folds"], recipe["max_updates"]) == ("cifar_resnet20", 2, 1)
    measured = len(timed)
    assert main(command) == 0
    assert "is already finished" in capsys.readouterr().out
    assert len(timed) == measured
