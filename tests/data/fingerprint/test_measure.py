"""Fingerprints of small folders: counts, sizes, colours, balance, objects, copies and what cannot be read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.data.fingerprint.fingerprint import Duplicates, Fingerprint, Spread
from drivetrain.data.fingerprint.measure import Measured, measure
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.data.folders import truncate, write_images
from tests.data.mask_files import save


def _measured(folder: Path, **options: Any) -> Measured:
    recipe = Recipe(data_dir=str(folder), validation_fraction=0.0, **{"dataset": "image-folder"} | options)
    return measure(open_data(recipe), dataset=recipe.dataset)


def _masked(folder: Path, **options: Any) -> Fingerprint:
    return _measured(folder, dataset="mask-folder", model="unet_same", **options).fingerprint


def test_counts_sizes_and_colours(tmp_path: Path) -> None:
    write_images(tmp_path, {"ant": 4, "bee": 2}, sizes=((8, 6), (10, 12)))
    found = _measured(tmp_path).fingerprint
    assert found.samples == {"train": 6}
    assert (found.measured, found.class_names, found.class_counts) == (6, ("ant", "bee"), (4, 2))
    assert (found.height_px, found.width_px) == (Spread(6.0, 9.0, 12.0), Spread(8.0, 9.0, 10.0))
    assert (found.channels, found.read_channels, found.bits) == (3, 3, 8)
    assert (found.pixel_shares, found.objects, found.duplicates, found.unreadable) == ((), None, None, ())


def test_colours_are_fractions_of_the_largest_value(tmp_path: Path) -> None:
    for name, colour in {"a": (0, 51, 255), "b": (102, 51, 255)}.items():
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8), colour).save(tmp_path / name / "0.png")
    found = _measured(tmp_path).fingerprint
    assert (found.mean, found.std) == ((0.2, 0.2, 1.0), (0.2, 0.0, 0.0))


def test_it_survives_a_file(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"ant": 4, "bee": 3})
    write_images(tmp_path / "val", {"ant": 2, "bee": 1})
    found = _measured(tmp_path).fingerprint
    assert Fingerprint.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_older_files_know_nothing_of_copies_in_the_training_set(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"ant": 4, "bee": 3})
    write_images(tmp_path / "val", {"ant": 2, "bee": 1})
    stored = json.loads(json.dumps(_measured(tmp_path).fingerprint.as_json()))
    del stored["copies_in_train"]
    stored["duplicates"] = {"count": 1, "first": [["a", "b"]]}
    found = Fingerprint.from_json(stored)
    assert (found.copies_in_train, found.duplicates) == (None, Duplicates(count=1, first=(("a", "b"),)))


def test_copies_are_looked_for_on_both_sides_of_the_split_to_come(tmp_path: Path) -> None:
    write_images(tmp_path, {"ant": 4, "bee": 3})
    assert _measured(tmp_path).fingerprint.copies_in_train == Duplicates(count=0, first=())
    (tmp_path / "bee" / "copy.png").write_bytes((tmp_path / "ant" / "001.png").read_bytes())
    found = _measured(tmp_path).fingerprint
    assert found.duplicates is None
    assert found.copies_in_train is not None
    assert found.copies_in_train.count == 2
    assert Fingerprint.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_grey_pixels_in_colour_files_are_noticed(tmp_path: Path) -> None:
    for index in range(4):
        pixels = np.full((8, 8), 60 * index, dtype=np.uint8)
        path = tmp_path / "ab"[index % 2] / f"{index}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).convert("RGB").save(path)
    found = _measured(tmp_path).fingerprint
    assert (found.channels, found.read_channels, len(found.mean), len(found.std)) == (1, 3, 1, 1)
    Image.new("RGB", (8, 8), (1, 2, 3)).save(tmp_path / "a" / "red.png")
    assert _measured(tmp_path).fingerprint.channels == 3


def test_copies_in_the_validation_set_are_found(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"ant": 3, "bee": 3})
    write_images(tmp_path / "val", {"ant": 2, "bee": 2}, seed=1)
    none = _measured(tmp_path).fingerprint.duplicates
    assert none is not None
    assert (none.count, none.first) == (0, ())
    content = (tmp_path / "train" / "ant" / "001.png").read_bytes()
    (tmp_path / "val" / "bee" / "copy.png").write_bytes(content)
    copies = _measured(tmp_path).fingerprint.duplicates
    assert copies is not None
    assert copies.count == 1
    ((train, validation),) = copies.first
    assert train.endswith("train/ant/001.png")
    assert validation.endswith("val/bee/copy.png")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    write_images(tmp_path, {"ant": 3, "bee": 3}, sizes=((40, 40),))
    truncate(tmp_path / "ant" / "001.png")
    found = _measured(tmp_path).fingerprint
    assert [Path(name).name for name in found.unreadable] == ["001.png"]
    assert (found.samples, found.measured) == ({"train": 6}, 5)


def test_a_folder_without_a_readable_image_is_refused(tmp_path: Path) -> None:
    write_images(tmp_path, {"ant": 1, "bee": 1}, sizes=((40, 40),))
    for path in tmp_path.rglob("*.png"):
        truncate(path)
    with pytest.raises(BadInputError, match="none of the 2 images"):
        _measured(tmp_path)


def _write_masked(folder: Path, *, count: int = 3, depth: Any = np.uint8) -> None:
    """Grey images of 20 x 16 with a square of 5 x 5 pixels as mask, and one of 2 pixels, which is a speck."""
    random = np.random.default_rng(0)
    for index in range(count):
        save(
            folder / "images" / f"{index}.png",
            random.integers(0, np.iinfo(depth).max, (20, 16)).astype(depth),
        )
        mask = np.zeros((20, 16), dtype=np.uint8)
        mask[2:7, 3:8] = 255
        mask[15, 10:12] = 255
        save(folder / "masks" / f"{index}.png", mask)


def test_masks_have_shares_and_objects(tmp_path: Path) -> None:
    _write_masked(tmp_path)
    found = _masked(tmp_path)
    assert (found.task, found.samples, found.channels, found.read_channels) == (
        "segmentation",
        {"train": 3},
        1,
        1,
    )
    assert found.class_counts == (3, 3)
    assert found.pixel_shares == (round(1 - 27 / 320, 5), round(27 / 320, 5))
    assert found.objects is not None
    assert found.objects.per_image == 1.0
    assert found.objects.diameter_px == Spread(*[round(2 * (25 / np.pi) ** 0.5, 2)] * 3)


def test_masks_without_any_object(tmp_path: Path) -> None:
    _write_masked(tmp_path)
    for path in (tmp_path / "masks").iterdir():
        save(path, np.zeros((20, 16), dtype=np.uint8))
    found = _masked(tmp_path, num_classes=2)
    assert (found.objects, found.pixel_shares, found.class_counts) == (None, (1.0, 0.0), (3, 0))


def test_a_large_folder_is_sampled_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, {"ant": 12, "bee": 12})
    monkeypatch.setattr("drivetrain.data.fingerprint.measure.MOST_LABELLED", 6)
    found = _measured(tmp_path).fingerprint
    assert (found.measured, found.samples, found.class_counts) == (6, {"train": 24}, (12, 12))
