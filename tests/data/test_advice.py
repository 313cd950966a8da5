"""What is said of labels: where they start, and which classes have no validation sample."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drivetrain
from drivetrain.catalogue.data_sets import held_out_count
from drivetrain.core.errors import BadInputError
from drivetrain.data.advice import options_to_hold_out, refuse_late_labels
from drivetrain.data.labels import labels_of
from drivetrain.data.source import ArraySource, DataSplits, Source, SubsetSource
from drivetrain.data.splits import open_data, split_user_data
from drivetrain.plan.training_plan import plan_training
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from drivetrain.run.request import prepare_request
from tests.data.folders import write_images
from tests.data.mask_files import write_pairs


def _own(labels: list[int]) -> DataSplits:
    images = np.zeros((len(labels), 4, 4, 1), dtype=np.uint8)
    return split_user_data(Recipe(), train=(images, np.array(labels)))


def test_labels_that_start_above_0_are_refused_as_they_are() -> None:
    with pytest.raises(
        BadInputError, match="go from 1 to 3, but labels must start at 0; subtract 1 from each label"
    ):
        refuse_late_labels(_own([1, 2, 3, 1]), outputs=3)
    refuse_late_labels(_own([0, 1, 3]), outputs=3)


@pytest.mark.parametrize(("files", "option"), [(5, "--folds"), (9, "--validation-fraction"), (1, "")])
def test_classes_without_a_validation_sample_are_named(tmp_path: Path, files: int, option: str) -> None:
    write_images(tmp_path, {f"class{number}": files for number in range(10)})
    recipe = Recipe(dataset="image-folder", data_dir=str(tmp_path), validation_fraction=0.1)
    (warning,) = open_data(recipe).warnings
    assert re.match(r"No sample of class class\d[, ].* \(--validation-fraction 0\.1\)", warning)
    assert "val folder" in warning
    words = warning.partition("; use ")[2].partition("validation images")[0].removesuffix(" or ").split()
    assert words[:1] == option.split()
    if words:
        values = {
            name.removeprefix("--").replace("-", "_"): words[words.index(name) + 1] for name in words[::2]
        }
        _require_all_classes(
            open_data(Recipe.model_validate({**recipe.model_dump(), "validation_fraction": None, **values}))
        )


def _require_all_classes(data: DataSplits) -> None:
    assert data.warnings == []
    assert data.validation is not None
    assert set(labels_of(data.validation)) == set(labels_of(data.train)) == set(range(10))


def _source(samples: int) -> Source:
    images = np.zeros((samples, 2, 2, 1), dtype=np.uint8)
    return ArraySource(images=images, labels=np.zeros(samples, dtype=np.int64))


def _typed(words: str) -> dict[str, Any]:
    """The options that a sentence names with a value."""
    pairs = re.findall(r"--([a-z-]+) ([\w.]+)", words)
    return {name.replace("-", "_"): value for name, value in pairs}


@pytest.mark.parametrize("micro", [1, 4, 8])
@pytest.mark.parametrize("samples", [2, 3, 4, 5, 8, 9, 10, 100])
def test_what_it_names_can_be_trained(samples: int, micro: int) -> None:
    asked: dict[str, Any] = {"dataset": "digits", "micro_batch_size": micro}
    options = options_to_hold_out(resolve_recipe(overrides=asked).recipe, _source(samples))
    assert options is not None
    followed = resolve_recipe(overrides={**asked, **_typed(options)}).recipe
    assert followed.validation_fraction == 0.2
    left = samples - held_out_count(samples, fraction=0.2)
    assert plan_training(followed, samples=left).epochs.total_updates >= 1
    assert ("pad" in options) == (left < micro)


def test_a_single_sample_is_not_divided() -> None:
    assert options_to_hold_out(Recipe(), _source(1)) is None


def test_a_limit_does_not_count_as_all_there_is() -> None:
    recipe = Recipe(micro_batch_size=1, limit_train_samples=1)
    limited = SubsetSource(_source(10), np.arange(1))
    assert options_to_hold_out(recipe, limited) == "--validation-fraction 0.2"
    assert options_to_hold_out(recipe, _source(1)) is None


_ONE: dict[str, Any] = {
    "dataset": "mask-folder",
    "model": "unet_same",
    "model_width": 2,
    "model_params": {"depth": 1},
    "micro_batch_size": 4,
    "num_epochs": 1,
    "device": "cpu",
}


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ({}, "--validation-fraction 0 --remainder pad"),
        ({"validation_fraction": 0}, "--micro-batch-size 1 --global-batch-size 1"),
        ({"training": False, "validation_fraction": 0}, "leave it out"),
    ],
)
def test_refusals_of_a_single_image_name_what_works(
    tmp_path: Path, first: dict[str, Any], words: str
) -> None:
    data = write_pairs(tmp_path / "own", count=1)
    asked = {**_ONE, "data_dir": str(data), "output_dir": str(tmp_path / "run")}
    with pytest.raises(BadInputError, match=words) as refused:
        prepare_request(resolve_recipe(overrides={**asked, **first}))
    assert "smaller" not in str(refused.value)
    if named := _typed(words):
        followed = {**asked, **first, **named}
        assert prepare_request(resolve_recipe(overrides=followed)).plan.epochs.total_updates == 1


@pytest.mark.usefixtures("no_pictures")
def test_warnings_of_a_single_image_name_what_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_pairs(tmp_path / "own", count=1)
    asked = {**_ONE, "data_dir": str(data), "validation_fraction": 0, "remainder": "pad"}
    drivetrain.train(output_dir=str(tmp_path / "run"), limit_validation_samples=1, **asked)
    said = capsys.readouterr().out
    assert "--validation-fraction 0.2" not in said
    assert "has no effect: there are no validation samples; leave it out." in said
    assert "--validation False trains without" in said
    drivetrain.train(output_dir=str(tmp_path / "quieter"), validation=False, **asked)
    assert "warning: " not in capsys.readouterr().out
