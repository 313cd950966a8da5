"""The file of `--precision-list`: its contents become part of the recipe."""

from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import read_recipe_yaml, recipe_to_yaml, resolve_recipe
from drivetrain.recipe.params import PrecisionList
from drivetrain.recipe.precision_file import read_precision_list
from drivetrain.store.identity import identity_of


def _file(folder: Path, text: str, *, name: str = "lists.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lists.yaml", "half: [conv, linear]\nfloat32: [head]\n"),
        ("lists.json", '{"half": ["conv", "linear"], "float32": ["head"]}'),
    ],
)
def test_yaml_and_json(tmp_path: Path, name: str, text: str) -> None:
    path = _file(tmp_path, text, name=name)
    lists = {"half": ["conv", "linear"], "float32": ["head"]}
    assert read_precision_list(path) == lists
    recipe = resolve_recipe(overrides={"precision_list": str(path), "precision": "16.32"}).recipe
    assert recipe.precision_list == PrecisionList(half=("conv", "linear"), float32=("head",))


def test_the_recipe_holds_the_lists_and_not_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "half: [conv]")
    overrides = {"precision_list": str(path), "precision": "16.32"}
    recipe = resolve_recipe(overrides=overrides).recipe
    written = _file(tmp_path, recipe_to_yaml(recipe), name="recipe.yaml")
    path.unlink()
    again = resolve_recipe(base=read_recipe_yaml(written)).recipe
    assert again == recipe
    identity = identity_of(recipe, global_batch=32)
    assert identity["precision_list"] == {"half": ["conv"], "float32": []}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "does not contain lists of layers"),
        ("- conv", "does not contain lists of layers"),
        ("halve: [conv]", "has an unknown list halve. Did you mean half?"),
        ("wide: [conv]", "Its lists are half and float32."),
        ("half: conv", "half in --precision-list"),
        ("half: [1]", "is not a list of layer kinds and names"),
        ("half: []", "lists no layer under half"),
        ("float32: [conv]", "lists no layer under half"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadInputError) as error:
        read_precision_list(_file(tmp_path, text))
    assert sentence in str(error.value)
    assert "--precision-list" in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "{half: [], float32: []}",
            "half of --precision-list is empty, it must name at least one; "
            '--precision-list \'{"half": ["conv", "linear"]}\' works.',
        ),
        (
            "[conv]",
            "--precision-list [conv] is a list without a key; put it under the key half, for example "
            "'{half: [conv]}'.",
        ),
        (
            "[]",
            "--precision-list [] is a list without a key; put it under the key half, for example "
            "'{half: [conv]}'.",
        ),
        (
            "{halff: [conv]}",
            "--precision-list has no key halff. Did you mean half? Its keys are half, float32.",
        ),
        (
            "{float32: [conv]}",
            '--precision-list needs the key half; --precision-list \'{"half": ["conv", "linear"]}\' works.',
        ),
    ],
)
def test_lists_in_the_place_of_a_file(text: str, sentence: str) -> None:
    with pytest.raises(BadInputError) as error:
        resolve_recipe(overrides={"precision_list": text, "precision": "16.32"})
    assert str(error.value) == sentence


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="is not a file"):
        read_precision_list(tmp_path / "none.yaml")
