"""`recipes list` and `recipes show`, as a user calls them."""

import json
from pathlib import Path

import pytest
import yaml

from drivetrain.cli.main import main
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.named import packaged_names
from drivetrain.recipe.schema import Recipe

Capture = pytest.CaptureFixture[str]


def test_list(capsys: Capture) -> None:
    assert main(["recipes", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["recipe", "description"]
    assert [line.split()[0] for line in lines[1:]] == packaged_names()


def test_list_as_json(capsys: Capture) -> None:
    assert main(["recipes", "list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in entries] == packaged_names()
    assert all(entry["description"] for entry in entries)


def test_show_has_every_value_and_origin(capsys: Capture) -> None:
    assert main(["recipes", "show", "mnist_tutorial", "--lr", "0.5"]) == 0
    written = capsys.readouterr()
    rows = {line.split()[0]: line for line in written.out.splitlines()}
    assert set(rows) == {"option", *(field.replace("_", "-") for field in Recipe.model_fields)}
    assert rows["learning-rate"].split(maxsplit=2)[1:] == ["0.5", "command line"]
    assert rows["model"].endswith("recipe mnist_tutorial (mnist_tutorial.yaml:2)")
    assert rows["seed"].split()[1:] == ["0", "default"]
    assert rows["data-dir"].split()[1:] == ["-", "default"]
    assert '{"momentum": 0}' in rows["optimizer-params"] or '{"momentum": 0.0}' in rows["optimizer-params"]
    assert written.err == ""
    assert "\x1b" not in written.out


def test_show_as_json(capsys: Capture) -> None:
    assert main(["recipes", "show", "--config", "digits", "--json", "--num-replicas", "2"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["name"] == "digits"
    assert content["options"]["replicas"] == {"value": 2, "origin": "command line"}
    assert set(content["options"]) == set(Recipe.model_fields)


def test_show_as_yaml_is_a_recipe_file(capsys: Capture, tmp_path: Path) -> None:
    assert main(["recipes", "show", "synthetic_smoke", "--yaml"]) == 0
    path = tmp_path / "copy.yaml"
    path.write_text(capsys.readouterr().out)
    assert resolve_recipe(config_path=path).recipe == resolve_recipe(config="synthetic_smoke").recipe
    assert yaml.safe_load(path.read_text())["max_updates"] == 4


def test_show_a_file(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("one: {seed: 1}\ntwo: {inherits: one, epochs: 2}\n")
    assert main(["recipes", "show", "two", "--config-path", str(path)]) == 0
    assert f"{path}:1" in capsys.readouterr().out


def test_warnings_go_to_stderr(capsys: Capture) -> None:
    assert main(["recipes", "show", "--lr-schedule", "const", "--lr-staircase"]) == 0
    assert capsys.readouterr().err.startswith(
        "drivetrain recipes: warning: --lr-staircase True has no effect"
    )


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ["show", "digitz"],
            "drivetrain recipes: error: --config digitz is not a recipe. Did you mean digits?",
        ),
        (
            ["show", "digits", "--config", "digits"],
            "drivetrain recipes: error: digits and --config digits both name",
        ),
        (
            ["show", "--micro-batch-size", "0"],
            "drivetrain recipes: error: --micro-batch-size is 0, it must be",
        ),
        (
            ["show", "--gradient-accumulation-count", "10", "--global-batch-size", "10"],
            "drivetrain recipes: error: --gr",
        ),
        (
            ["show", "--eight-bit-transfer", "--accelerator-side-preprocess", "False"],
            "drivetrain recipes: error: --ei",
        ),
        (["show", "--wrong-arg"], "drivetrain recipes show: error: --wrong-arg is not an option."),
        (["list", "--seed", "1"], "drivetrain recipes list: error: --seed is not an option."),
        (
            ["shw"],
            "drivetrain recipes: error: shw is not a command. Did you mean show? Commands: list, show.",
        ),
        (
            ["show", "--json", "--yaml"],
            "drivetrain recipes show: error: --yaml and --json cannot both be given; leave one out.",
        ),
    ],
)
def test_mistakes(capsys: Capture, argv: list[str], sentence: str) -> None:
    assert main(["recipes", *argv]) == 2
    written = capsys.readouterr()
    assert written.err.startswith(sentence)
    assert written.err.count("\n") == 1
    assert written.out == ""
