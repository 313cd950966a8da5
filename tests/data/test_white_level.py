"""Grey images of 16 bits of which a camera fills 12."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

import drivetrain
from drivetrain.core.errors import BadInputError
from drivetrain.data.files.decode import decode_image, image_of
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.recipe.load import resolve_recipe

SMALL: dict[str, Any] = {
    "model": "unet_same",
    "model_width": 4,
    "micro_batch_size": 2,
    "max_updates": 2,
    "device": "cpu",
    "quiet": True,
}


def _write(folder: Path, *, brightest: int, dtype: type = np.uint16) -> Path:
    random = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
    for index in range(4):
        image = random.integers(0, brightest + 1, (32, 32))
        image[0, 0] = brightest
        tifffile.imwrite(folder / "images" / f"{index}.tif", image.astype(dtype))
        Image.fromarray((image > brightest // 2).astype(np.uint8)).save(folder / "masks" / f"{index}.png")
    return folder


@pytest.mark.parametrize("kind", ["png", "tif"])
def test_values_up_to_the_level_fill_eight_bits(tmp_path: Path, kind: str) -> None:
    values = np.array([[0, 100, 2048, 4095, 5000, 65535]], np.uint16)
    if kind == "tif":
        tifffile.imwrite(tmp_path / "x.tif", values)
    else:
        Image.fromarray(values).save(tmp_path / "x.png")
    image = image_of((tmp_path / f"x.{kind}").read_bytes())
    found = decode_image(
        image, channels=1, size=(6, 1), choose_box=lambda w, h: (0, 0, w, h), white_level=4095
    )
    expected = np.rint(np.minimum(values, 4095) / 4095 * 255)
    assert found[..., 0].tolist() == expected.tolist() == [[0, 6, 128, 255, 255, 255]]
    whole = decode_image(image, channels=1, size=(6, 1), choose_box=lambda w, h: (0, 0, w, h))
    assert whole[..., 0].tolist() == [[0, 0, 8, 16, 19, 255]]


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_the_warning_of_dark_images_names_the_level(tmp_path: Path, bits: int) -> None:
    level = 2**bits - 1
    folder = _write(tmp_path / "own", brightest=level)
    (dark,) = open_mask_folder(str(folder)).warnings
    assert f"use --white-level {level} to read {level} as white" in dark
    opened = open_mask_folder(str(folder), white_level=level)
    assert opened.warnings == []
    image, _ = opened.train.whole(0)
    assert (int(image.min()), int(image.max())) == (0, 255)


def test_dark_images_of_8_bits_have_no_level(tmp_path: Path) -> None:
    folder = _write(tmp_path / "own", brightest=15, dtype=np.uint8)
    (dark,) = open_mask_folder(str(folder)).warnings
    assert dark.endswith("brighter than 15 of 255.")
    with pytest.raises(BadInputError, match=r"^--white-level 4095 has no effect.*leave it out\.$"):
        open_mask_folder(str(folder), white_level=4095)


def test_other_data_sets_have_no_level() -> None:
    with pytest.raises(
        BadInputError, match=r"--white-level 4095 is for --dataset image-folder, image-table or"
    ):
        resolve_recipe(overrides={"dataset": "synthetic-em", "white_level": 4095})
    with pytest.raises(BadInputError, match=r"mask-folder, and this is --dataset digits"):
        resolve_recipe(overrides={"dataset": "digits", "white_level": 4095})


def _trained_and_predicted(place: Path, data: Path, **options: Any) -> NDArray[Any]:
    run, output = place / "run", place / "out"
    values = {**SMALL, "auto": "off", "dataset": "mask-folder", "data_dir": str(data), **options}
    drivetrain.train(output_dir=str(run), **values)
    drivetrain.predict(run, data / "images" / "0.tif", output=output, probabilities=True)
    (found,) = output.glob("*probabilities*")
    probabilities: NDArray[Any] = tifffile.imread(found)
    return probabilities


def test_a_run_predicts_by_the_level_it_was_trained_with(tmp_path: Path) -> None:
    """12 bits with a level are the same training, and the same prediction, as images scaled beforehand."""
    dark = _write(tmp_path / "dark", brightest=4095)
    _write(tmp_path / "scaled", brightest=4095)
    for path in (tmp_path / "scaled" / "images").iterdir():
        values = tifffile.imread(path).astype(np.uint32)
        Image.fromarray(((values * 255 + 2047) // 4095).astype(np.uint8)).save(path)
    by_level = _trained_and_predicted(tmp_path / "1", dark, white_level=4095)
    assert np.array_equal(by_level, _trained_and_predicted(tmp_path / "2", tmp_path / "scaled"))
    assert not np.array_equal(by_level, _trained_and_predicted(tmp_path / "3", dark))
