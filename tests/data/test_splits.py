"""Opening, holding out, limiting."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.catalogue.data_sets import dataset_info, sample_counts
from drivetrain.core.errors import BadInputError
from drivetrain.data.source import Source
from drivetrain.data.splits import open_data, split_user_data, warn_of_divided_files
from drivetrain.recipe.schema import Recipe
from tests.data.mask_files import write_pairs, write_volume
from tests.data.sources.mnist_files import write_mnist

IMAGES = np.arange(20, dtype=np.uint8).reshape(20, 1, 1, 1)
LABELS = np.arange(20) % 4


def numbers(source: Source | None) -> list[int]:
    """The samples of a source of IMAGES, each by its own number."""
    assert source is not None
    images, _ = source.fetch(np.arange(len(source)))
    found: list[int] = images.reshape(-1).tolist()
    return found


def test_digits_hold_out_a_fifth_by_default() -> None:
    data = open_data(Recipe(dataset="digits"))
    assert data.validation is not None
    assert (len(data.train), len(data.validation), data.test) == (1438, 359, None)
    assert data.spec.class_names == tuple("0123456789")


@pytest.mark.parametrize("fraction", [None, 0.0, 0.1])
@pytest.mark.parametrize("limit", [None, 100])
def test_counts_are_those_the_plan_foretells(fraction: float | None, limit: int | None) -> None:
    for name in ("digits", "synthetic"):
        recipe = Recipe(
            dataset=name,
            validation_fraction=fraction,
            limit_train_samples=limit,
            limit_validation_samples=limit,
            dataset_size=None if name == "digits" else 300,
        )
        data = open_data(recipe)
        foretold = sample_counts(
            dataset_info(name),
            dataset_size=recipe.dataset_size,
            validation_fraction=fraction,
            limit_train_samples=limit,
            limit_validation_samples=limit,
        )
        found = [0 if source is None else len(source) for source in (data.train, data.validation, data.test)]
        assert found == [foretold.train, foretold.validation, foretold.test]


def test_held_out_samples_are_disjoint_and_complete_and_seeded() -> None:
    data = split_user_data(Recipe(validation_fraction=0.3), train=(IMAGES, LABELS))
    assert len(numbers(data.validation)) == 6
    assert sorted(numbers(data.train) + numbers(data.validation)) == list(range(20))
    again = split_user_data(Recipe(validation_fraction=0.3), train=(IMAGES, LABELS))
    other = split_user_data(Recipe(validation_fraction=0.3, seed=1), train=(IMAGES, LABELS))
    assert numbers(again.validation) == numbers(data.validation)
    assert numbers(other.validation) != numbers(data.validation)


def test_switching_validation_off_does_not_change_the_training_samples() -> None:
    on, off = (
        split_user_data(Recipe(validation_fraction=0.3, validation=validation), train=(IMAGES, LABELS))
        for validation in (True, False)
    )
    assert numbers(on.train) == numbers(off.train)


def test_own_validation_samples_become_the_test_when_others_are_held_out(tmp_path: Path) -> None:
    folder = str(write_mnist(tmp_path))
    plain = open_data(Recipe(dataset="mnist", data_dir=folder))
    held_out = open_data(Recipe(dataset="mnist", data_dir=folder, validation_fraction=0.25))
    assert plain.validation is not None
    assert held_out.validation is not None
    assert held_out.test is not None
    assert (len(plain.train), len(plain.validation), plain.test) == (12, 5, None)
    assert (len(held_out.train), len(held_out.validation), len(held_out.test)) == (9, 3, 5)


def test_limits_come_after_holding_out_and_take_the_first() -> None:
    recipe = Recipe(validation_fraction=0.3, limit_train_samples=5, limit_validation_samples=2)
    whole = split_user_data(Recipe(validation_fraction=0.3), train=(IMAGES, LABELS))
    limited = split_user_data(recipe, train=(IMAGES, LABELS))
    assert numbers(limited.train) == numbers(whole.train)[:5]
    assert numbers(limited.validation) == numbers(whole.validation)[:2]
    assert limited.warnings == []


def test_limits_without_effect_are_said() -> None:
    recipe = Recipe(limit_train_samples=21, limit_validation_samples=9)
    with_validation = split_user_data(recipe, train=(IMAGES, LABELS), validation=(IMAGES[:8], LABELS[:8]))
    assert [len(numbers(with_validation.train)), len(numbers(with_validation.validation))] == [20, 8]
    first, second = with_validation.warnings
    assert "--limit-train-samples 21 is more than the 20 available samples" in first
    assert "--limit-validation-samples 9 is more than the 8 available samples" in second
    (_, without) = split_user_data(recipe, train=(IMAGES, LABELS)).warnings
    assert "--validation-fraction" in without


def test_synthetic_takes_the_shape_of_the_recipe() -> None:
    recipe = Recipe(dataset="synthetic", dataset_size=40, channels=2, image_size=12, num_classes=5)
    data = open_data(recipe)
    spec = data.spec
    assert (spec.channels, spec.height, spec.width, spec.num_classes) == (2, 12, 12, 5)
    assert data.validation is not None
    assert (len(data.train), len(data.validation)) == (40, 10)


def test_the_sources_size_is_kept_beside_the_asked_image_size() -> None:
    assert open_data(Recipe(dataset="digits", image_size=16)).spec.height == 8


def test_more_classes_are_allowed_and_fewer_are_not() -> None:
    assert open_data(Recipe(dataset="digits", num_classes=12)).spec.class_names[-1] == "11"
    with pytest.raises(BadInputError, match="--num-classes 9 is less than the 10 classes"):
        open_data(Recipe(dataset="digits", num_classes=9))


def test_options_that_do_not_fit_the_data_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"--channels 3.*--channels 1"):
        open_data(Recipe(dataset="digits", channels=3))
    with pytest.raises(BadInputError, match=r"--dataset-size 50 .*--limit-train-samples 50"):
        open_data(Recipe(dataset="digits", dataset_size=50))
    with pytest.raises(BadInputError, match="--limit-train-samples 50"):
        split_user_data(Recipe(dataset_size=50), train=(IMAGES, LABELS))
    with pytest.raises(BadInputError, match="--dataset digist"):
        open_data(Recipe(dataset="digist"))
    assert open_data(Recipe(dataset="digits", channels=1)).spec.channels == 1


def test_a_folder_without_effect_is_said() -> None:
    (warning,) = open_data(Recipe(dataset="digits", data_dir="somewhere")).warnings
    assert "--data-dir somewhere has no effect" in warning


@pytest.mark.parametrize("split", [{"folds": 5, "fold": 1}, {"validation_fraction": 0.3}])
def test_pages_of_one_file_on_both_sides(tmp_path: Path, split: dict[str, Any]) -> None:
    write_volume(tmp_path, sizes=[(12, 10)] * 10)
    recipe = Recipe(dataset="mask-folder", data_dir=str(tmp_path), model="unet_same", **split)
    opened = open_data(recipe)
    (warning,) = warn_of_divided_files(opened)
    assert warning in opened.warnings
    assert warning.startswith(f"Pages of {tmp_path}")
    assert "train/ and val/" in warning


def test_whole_files_on_each_side(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_volume(tmp_path / split, sizes=[(12, 10)] * 3)
    opened = open_data(Recipe(dataset="mask-folder", data_dir=str(tmp_path), model="unet_same"))
    assert opened.validation is not None
    assert (len(opened.train), len(opened.validation)) == (3, 3)
    assert warn_of_divided_files(opened) == []


def test_files_of_one_image_each(tmp_path: Path) -> None:
    write_pairs(tmp_path, count=6)
    recipe = Recipe(dataset="mask-folder", data_dir=str(tmp_path), model="unet_same", folds=3, fold=0)
    assert warn_of_divided_files(open_data(recipe)) == []
