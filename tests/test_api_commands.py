"""Python functions take what the commands of their names take, and do the same with it."""

import argparse
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import drivetrain
from drivetrain import RunResult
from drivetrain.cli import crossval, evaluate, plan, predict, verify
from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.aliases import ALIASES
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from tests.run.segments import segment, write_shapes

_OTHERWISE_IN_PYTHON = {"compile": "compiles", "config": "recipe"}
# DIR is `data_dir` in Python.
_ONLY_TYPED = {"help", "json", "directory"}
_SMALL: dict[str, Any] = {
    "dataset": "synthetic",
    "dataset_size": 32,
    "image_size": 16,
    "model": "cifar_resnet8",
    "micro_batch_size": 16,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def masks_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segmentation of images whose folder has moved since."""
    folder = tmp_path_factory.mktemp("masks")
    data = write_shapes(folder / "then")
    options = {"dataset": "mask-folder", "data_dir": str(data), "dataset_size": None, "image_size": None}
    segment(folder / "run", tile_size=24, num_workers=0, max_updates=1, **options)
    data.rename(folder / "now")
    return folder / "run"


@pytest.mark.parametrize(
    ("function", "command"),
    [
        (drivetrain.crossval, crossval),
        (drivetrain.evaluate, evaluate),
        (drivetrain.predict, predict),
        (drivetrain.make_plan, plan),
        (drivetrain.certify, verify),
    ],
)
def test_every_option_of_a_command_has_a_keyword(function: Callable[..., Any], command: ModuleType) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    typed = {action.dest for action in parser._actions} - _ONLY_TYPED
    own = typed if function in (drivetrain.evaluate, drivetrain.predict) else typed - set(Recipe.model_fields)
    wanted = {_OTHERWISE_IN_PYTHON.get(name, name) for name in own - set(ALIASES)}
    assert wanted <= set(inspect.signature(function).parameters)


def test_a_plan_saves_its_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    assert drivetrain.make_plan("digits", num_epochs=3, save_recipe=path) == drivetrain.make_plan(
        "digits", num_epochs=3
    )
    assert resolve_recipe(config_path=path).recipe.num_epochs == 3
    with pytest.raises(BadInputError, match="exists already"):
        drivetrain.make_plan("digits", save_recipe=path)


def test_evaluate_measures_what_the_command_measures(
    masks_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = masks_run.parent / "now"
    options = ["--data-dir", str(data_dir), "--flips", "--tile-overlap", "0.5", "--device", "cpu"]
    assert main(["evaluate", str(masks_run), "--split", "train", "--json", *options]) == 0
    typed = json.loads(capsys.readouterr().out)["evaluations"]
    asked: dict[str, Any] = {"split": "train", "data_dir": data_dir, "device": "cpu"}
    rows = drivetrain.evaluate(masks_run, flips=True, tile_overlap=0.5, **asked)
    assert rows == typed
    assert drivetrain.evaluate(masks_run, flips=False, tile_overlap=0.5, **asked) != rows
    assert drivetrain.evaluate(masks_run, flips=True, tile_overlap=0.0, **asked) != rows
    with pytest.raises(BadInputError, match="then is not an existing folder"):
        drivetrain.evaluate(masks_run, split="train", device="cpu")


def test_evaluate_speaks_only_when_asked_to(masks_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(**options: Any) -> str:
        drivetrain.evaluate(masks_run, data_dir=masks_run.parent / "now", device="cpu", **options)
        return capsys.readouterr().out

    damaged = masks_run / "checkpoints" / "99"
    damaged.mkdir()
    try:
        assert said() == ""
        assert "warning: " in said(quiet=False)
    finally:
        damaged.rmdir()


def test_predict_writes_where_the_command_does(masks_run: Path, tmp_path: Path) -> None:
    image = masks_run.parent / "now" / "images" / "0.png"
    there = masks_run / "predictions"
    assert not (there / "predictions.csv").exists()
    rows = drivetrain.predict(masks_run, image, device="cpu")
    assert (there / "predictions.csv").is_file()
    assert not (there / "predictions.json").exists()
    assert drivetrain.predict(masks_run, [image], output=tmp_path, format="json", checkpoint=1) == rows
    assert json.loads((tmp_path / "predictions.json").read_text()) == rows
    assert not (tmp_path / "predictions.csv").exists()
    drivetrain.predict(masks_run, str(image), output=tmp_path / "both", format="both")
    assert {path.suffix for path in (tmp_path / "both").glob("predictions.*")} == {".csv", ".json"}


def test_recipes_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "short: {dataset: synthetic, dataset_size: 64, micro_batch_size: 16, num_epochs: 1}\n"
        "long: {inherits: short, num_epochs: 3}\n"
    )
    assert drivetrain.make_plan("short", config_path=file)["total_updates"] == 4
    assert drivetrain.make_plan("long", config_path=file)["total_updates"] == 12
    with pytest.raises(BadInputError, match="--config-path"):
        drivetrain.make_plan("short", config_path=tmp_path / "other.yaml")
    with pytest.raises(BadInputError, match="not a Recipe object"):
        drivetrain.make_plan(Recipe(), config_path=file)
    for function in (drivetrain.train, drivetrain.crossval, drivetrain.certify):
        with pytest.raises(BadInputError, match=r"tiny.*mine\.yaml"):
            function("tiny", config_path=file, quiet=True)


@pytest.mark.parametrize(
    ("function", "given", "keywords", "words"),
    [
        (drivetrain.evaluate, ["run"], {"split": "other"}, "split is 'other', it must be one of"),
        (drivetrain.evaluate, ["run"], {"compiles": "maybe"}, "compiles is 'maybe', it must be one of"),
        (drivetrain.evaluate, ["run"], {"data": (), "data_dir": "here"}, "data_dir has no effect"),
        (drivetrain.predict, ["run", "a.png"], {"compiles": "maybe"}, "compiles is 'maybe'"),
        (drivetrain.predict, ["run", "a.png"], {"format": "xml"}, "format is 'xml', it must be one of"),
        (drivetrain.certify, [], {"updates": 0, **_SMALL}, "updates=10 works"),
        (drivetrain.certify, [], {"dtype": "float16", **_SMALL}, "dtype is 'float16', it must be one of"),
        (
            drivetrain.train,
            [],
            {"folds": 2, "fold": 0, "parallel_folds": 2, **_SMALL},
            "is only for crossval",
        ),
    ],
)
def test_what_a_command_would_refuse_is_refused(
    function: Callable[..., Any], given: list[str], keywords: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInputError, match=words):
        function(*given, **keywords)


def test_json_leaves_warnings_on_stderr(masks_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_dir = str(masks_run.parent / "now")
    options = ["--data-dir", data_dir, "--split", "all", "--json", "--device", "cpu"]
    assert main(["evaluate", str(masks_run), *options]) == 0
    told = capsys.readouterr()
    assert "warning: " in told.err
    assert "RUN was trained on" in told.err
    assert json.loads(told.out)["evaluations"][0]["split"] == "all"


def test_no_input_is_refused_and_nothing_noted(masks_run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="INPUT is empty; give image files"):
        drivetrain.predict(masks_run, [], output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tab_finds_the_functions_and_a_result_is_short(masks_run: Path) -> None:
    assert {"train", "crossval", "evaluate", "predict", "Recipe"} <= set(dir(drivetrain))
    result = RunResult(
        directory=masks_run, status="finished", updates=1, metrics={}, model=torch.nn.Linear(1, 1)
    )
    assert "Linear" not in repr(result)


@pytest.mark.parametrize("asked", [{"budget": "10s"}, {"auto": "on"}])
def test_what_is_for_rules_is_refused_where_none_apply(tmp_path: Path, asked: dict[str, Any]) -> None:
    own: dict[str, Any] = {"dataset": "image-folder", "data_dir": str(tmp_path)}
    for function in (drivetrain.train, drivetrain.make_plan, drivetrain.certify):
        with pytest.raises(BadInputError, match="rules choose nothing for a Recipe object"):
            function(Recipe(**own, **asked))
    with pytest.raises(BadInputError, match="rules choose options for train, crossval and plan alone"):
        drivetrain.certify(dataset="cifar10", **{"auto": "on", **asked})


@pytest.mark.parametrize("command", ["verify", "bench train", "recipes show"])
def test_commands_without_rules_refuse_a_budget(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--dataset", "image-folder", "--data-dir", "photos", "--budget", "10s"]
    assert main([*command.split(), *options]) == 2
    assert "--budget 10s has no effect here: rules choose options for train" in capsys.readouterr().err


def test_a_search_and_its_pictures_from_python(tmp_path: Path) -> None:
    plan = drivetrain.make_plan(
        **_SMALL, stages="auto", devices=2, memory_limit="500MB", pictures=tmp_path / "new"
    )
    best = plan["search"]["best"][0]
    assert best["stages"] == plan["layout"]["stages"]
    assert (tmp_path / "new" / "timeline.png").is_file()
    with pytest.raises(BadInputError, match="memory_limit 8GB works"):
        drivetrain.make_plan(**_SMALL, search=True, memory_limit="much")
