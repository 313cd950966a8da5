"""Class folders of image files."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.data.folders import write_images


def opened(folder: Path, **fields: Any) -> DataSplits:
    return open_data(Recipe(**{"dataset": "image-folder", "data_dir": str(folder), **fields}))


def counts(data: DataSplits) -> tuple[int, int, int]:
    train, validation, test = (
        0 if source is None else len(source) for source in (data.train, data.validation, data.test)
    )
    return train, validation, test


def test_two_classes_of_one_pixel(tmp_path: Path) -> None:
    write_images(tmp_path, {"b": 1, "a": 1}, sizes=((1, 1),))
    data = opened(tmp_path, validation_fraction=0.0)
    images, labels = data.train.fetch(np.arange(2))
    assert (images.shape, labels.tolist(), data.spec.class_names) == ((2, 1, 1, 3), [0, 1], ("a", "b"))
    assert data.warnings == []


def test_a_fifth_is_held_out_where_there_is_no_validation_folder(tmp_path: Path) -> None:
    write_images(tmp_path / "plain", {"a": 12, "b": 8})
    assert counts(opened(tmp_path / "plain")) == (16, 4, 0)
    write_images(tmp_path / "split" / "train", {"a": 12, "b": 8})
    assert counts(opened(tmp_path / "split")) == (16, 4, 0)


@pytest.mark.parametrize("name", ["val", "validation", "test"])
def test_validation_folder(tmp_path: Path, name: str) -> None:
    write_images(tmp_path / "train", {"a": 6, "b": 4})
    write_images(tmp_path / name, {"b": 3}, seed=1)
    data = opened(tmp_path)
    assert counts(data) == (10, 3, 0)
    assert data.validation is not None
    assert data.validation.fetch(np.arange(3))[1].tolist() == [1, 1, 1]
    assert any("no images of class a" in warning for warning in data.warnings)


def test_validation_and_test_folders(tmp_path: Path) -> None:
    for name, count in (("train", 5), ("val", 3), ("test", 2)):
        write_images(tmp_path / name, {"a": count - 1, "b": 1})
    write_images(tmp_path / "extra", {"a": 1})
    data = opened(tmp_path)
    assert counts(data) == (5, 3, 2)
    (warning,) = data.warnings
    assert "also contains extra" in warning


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    write_images(tmp_path, {"train": 3, "ship": 2})
    assert opened(tmp_path, validation_fraction=0.0).spec.class_names == ("ship", "train")


def test_order_nesting_hidden_and_other_files(tmp_path: Path) -> None:
    write_images(tmp_path, {"b": 2, "a/z": 1, "a": 1, ".hidden": 1, "b/.git": 1})
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "a" / ".DS_Store").write_text("hidden")
    data = opened(tmp_path, validation_fraction=0.0)
    assert data.train.store.names == ("a/000.png", "a/z/000.png", "b/000.png", "b/001.png")  # type: ignore[attr-defined]
    (warning,) = data.warnings
    assert "without an image extension are skipped (1 in all): a/notes.txt" in warning


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    write_images(tmp_path / "data", {"a": 2})
    write_images(tmp_path / "elsewhere", {"b": 3})
    (tmp_path / "data" / "b").symlink_to(tmp_path / "elsewhere" / "b")
    (tmp_path / "data" / "a" / "loop").symlink_to(tmp_path / "data" / "a")
    assert counts(opened(tmp_path / "data", validation_fraction=0.0)) == (5, 0, 0)


def test_an_empty_class_is_said_and_keeps_its_number(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 2, "c": 2})
    (tmp_path / "b").mkdir()
    data = opened(tmp_path, validation_fraction=0.0)
    assert data.spec.class_names == ("a", "b", "c")
    assert data.train.fetch(np.arange(4))[1].tolist() == [0, 0, 2, 2]
    assert any("no images of class b" in warning for warning in data.warnings)


def test_folders_that_will_not_do(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="--data-dir DIR"):
        open_data(Recipe(dataset="image-folder"))
    with pytest.raises(BadInputError, match=r"--data-dir .*nowhere is not an existing folder"):
        opened(tmp_path / "nowhere")
    with pytest.raises(BadInputError, match="contains no class folders"):
        opened(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(BadInputError, match="contains no images"):
        opened(tmp_path)
    write_images(tmp_path / "split" / "train", {"a": 1})
    write_images(tmp_path / "split" / "val", {"a": 1, "other": 1})
    with pytest.raises(BadInputError, match="has the class other, which the training images lack"):
        opened(tmp_path / "split")
    (tmp_path / "split" / "validation").mkdir()
    with pytest.raises(BadInputError, match="both val and validation"):
        opened(tmp_path / "split")


def test_size_is_the_common_one_or_224_with_a_warning(tmp_path: Path) -> None:
    write_images(tmp_path / "same", {"a": 2, "b": 1}, sizes=((12, 12),))
    write_images(tmp_path / "flat", {"a": 2, "b": 1}, sizes=((12, 9),))
    write_images(tmp_path / "many", {"a": 2, "b": 1}, sizes=((12, 12), (12, 9)))
    same, flat, many = (opened(tmp_path / name, validation_fraction=0.0) for name in ("same", "flat", "many"))
    assert [(data.spec.height, data.spec.width) for data in (same, flat, many)] == [
        (12, 12),
        (9, 12),
        (224, 224),
    ]
    assert same.warnings == flat.warnings == []
    (warning,) = many.warnings
    assert "224x224; use --image-size N" in warning
    asked = opened(tmp_path / "many", validation_fraction=0.0, image_size=6)
    assert (asked.spec.height, asked.spec.short_side, asked.warnings) == (6, 6, [])
    assert asked.train.fetch(np.arange(3))[0].shape == (3, 6, 6, 3)


def test_images_of_the_right_size_keep_every_value(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 1}, sizes=((9, 8),))
    stored = np.asarray(Image.open(tmp_path / "a" / "000.png"))
    whole = opened(tmp_path, validation_fraction=0.0)
    assert np.array_equal(whole.train.fetch(np.array([0]))[0][0], stored)
    cropped = opened(tmp_path, validation_fraction=0.0, image_size=8)
    assert np.array_equal(cropped.train.fetch(np.array([0]))[0][0], stored[:, :8])


def test_channels(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 2})
    grey = opened(tmp_path, validation_fraction=0.0, channels=1)
    assert grey.train.fetch(np.arange(2))[0].shape == (2, 8, 8, 1)
    assert grey.spec.channels == 1
    with pytest.raises(BadInputError, match="--channels 2 is not supported"):
        opened(tmp_path, channels=2)


def test_random_crops_are_taken_at_decode_also_through_subsets(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 10}, sizes=((40, 30), (31, 50)))
    plain = opened(tmp_path, image_size=16)
    assert not plain.train.augments_at_decode  # type: ignore[attr-defined]
    data = opened(tmp_path, image_size=16, random_resized_crop=0.2)
    train = pickle.loads(pickle.dumps(data.train))
    assert train.augments_at_decode
    indices = np.arange(len(train))
    first, labels = train.fetch_augmented(indices, np.zeros(8, dtype=np.int64))
    assert (first.shape, labels.tolist()) == ((8, 16, 16, 3), [0] * 8)
    second, _ = train.fetch_augmented(indices, np.ones(8, dtype=np.int64))
    assert not np.array_equal(first, second)
    mixed, _ = train.fetch_augmented(np.array([3, 3]), np.array([1, 0]))
    assert np.array_equal(mixed, np.stack([second[3], first[3]]))
    whole = opened(tmp_path, image_size=16, random_resized_crop=0.2, validation_fraction=0.0).train
    same, _ = whole.fetch_augmented(train.indices, np.zeros(8, dtype=np.int64))  # type: ignore[attr-defined]
    assert np.array_equal(same, first)
    assert np.array_equal(train.fetch(indices)[0], plain.train.fetch(indices)[0])


def test_imagenet(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"n01": 2, "n02": 2}, sizes=((300, 256), (256, 400)))
    write_images(tmp_path / "val", {"n01": 1}, sizes=((300, 256),))
    for name in ("imagenet", "gc-imagenet"):
        data = opened(tmp_path, dataset=name)
        assert (data.spec.height, data.spec.short_side, data.spec.normalisation) == (224, 256, "imagenet")
        assert any("4 training and 1 validation images of 2 classes" in said for said in data.warnings)
        assert data.train.augments_at_decode  # type: ignore[attr-defined]
    assert not opened(tmp_path, dataset="imagenet", augment=False).train.augments_at_decode  # type: ignore[attr-defined]
    assert data.validation is not None
    stored = np.asarray(Image.open(tmp_path / "val" / "n01" / "000.png"))
    assert np.array_equal(data.validation.fetch(np.array([0]))[0][0], stored[16:240, 38:262])
    small = opened(tmp_path, dataset="imagenet", image_size=112)
    assert (small.spec.height, small.spec.short_side) == (112, 128)


def test_a_limit_takes_samples_of_every_class(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 10, "b": 10})
    data = opened(tmp_path, limit_train_samples=4, validation_fraction=0.0)
    assert data.train.fetch(np.arange(4))[1].tolist() == [0, 0, 1, 1]
