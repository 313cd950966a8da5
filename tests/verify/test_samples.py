"""The samples of a verification: the recipe's own, or generated ones of the same shape."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSplits
from drivetrain.recipe.load import resolve_recipe
from drivetrain.verify.samples import open_samples


@pytest.fixture(autouse=True)
def _without_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _open(**options: Any) -> tuple[DataSplits, str]:
    return open_samples(resolve_recipe(overrides=options), global_batch=4)


def test_the_own_samples_where_they_can_be_opened() -> None:
    splits, said = _open(dataset="digits")
    assert said == "digits"
    assert len(splits.train) == 18
    assert splits.validation is None
    assert splits.warnings == []


def test_all_samples_of_a_small_data_set_without_a_word_about_limits() -> None:
    splits, _ = _open(dataset="synthetic", dataset_size=6)
    assert len(splits.train) == 6
    assert splits.warnings == []


def test_generated_images_stand_in_for_missing_files() -> None:
    splits, said = _open(dataset="cifar100")
    assert said.startswith("data generated in the shape of cifar100, which cannot be opened (")
    assert (splits.spec.channels, splits.spec.height, splits.spec.num_classes) == (3, 32, 100)
    images, labels = splits.train.fetch(np.arange(18))
    assert images.shape == (18, 32, 32, 3)
    assert labels.shape == (18,)


def test_generated_masks_stand_in_for_missing_masks() -> None:
    splits, _ = _open(dataset="mask-folder", model="unet_same", image_size=32, channels=3, num_classes=5)
    images, masks = splits.train.fetch(np.arange(18))
    assert images.shape == (18, 32, 32, 3)
    assert masks.shape == (18, 32, 32, 1)
    assert set(np.unique(masks)) == set(range(5))


def test_nothing_stands_in_where_somebody_said_where_the_files_are(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="--data-dir"):
        _open(dataset="cifar10", data_dir=str(tmp_path / "nowhere"))
