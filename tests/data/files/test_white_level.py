"""16-bit grey images in class folders, of which a camera fills 12 bits."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import drivetrain
from drivetrain.auto.choose import fingerprint_of
from drivetrain.core.errors import BadInputError
from drivetrain.data.files.image_source import ImageSource
from drivetrain.data.files.white_level import highest_level
from drivetrain.data.splits import open_data
from drivetrain.inference.model.restore import open_trained_run
from drivetrain.inference.predict.predict import read_image
from drivetrain.recipe.schema import Recipe


def _write(folder: Path, *, brightest: int, dtype: type = np.uint16) -> Path:
    random = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (folder / name).mkdir(parents=True)
        for index in range(4):
            image = random.integers(0, brightest + 1, (12, 12))
            image[0, 0] = brightest
            Image.fromarray(image.astype(dtype)).save(folder / name / f"{index}.png")
    return folder


def _source(folder: Path, *, white_level: int | None = None) -> ImageSource:
    recipe = Recipe(
        dataset="image-folder",
        data_dir=str(folder),
        channels=1,
        white_level=white_level,
        validation_fraction=0.0,
        model="cifar_resnet8",
    )
    source = open_data(recipe).train
    assert isinstance(source, ImageSource)
    return source


@pytest.mark.parametrize(
    ("brightest", "level"), [(4095, 4095), (2048, 4095), (1023, 1023), (40_000, None), (0, None)]
)
def test_the_level_is_that_of_the_bits_that_are_filled(
    tmp_path: Path, brightest: int, level: int | None
) -> None:
    assert highest_level(_source(_write(tmp_path / "own", brightest=brightest))) == level


def test_images_of_8_bits_and_unreadable_ones_have_none(tmp_path: Path) -> None:
    source = _source(_write(tmp_path / "own", brightest=255, dtype=np.uint8))
    assert highest_level(source) is None
    deep = _write(tmp_path / "deep", brightest=4095)
    source = _source(deep)
    (deep / "ant" / "0.png").write_bytes(b"no image")
    assert highest_level(source) == 4095


def test_classified_images_are_read_up_to_the_level(tmp_path: Path) -> None:
    folder = _write(tmp_path / "own", brightest=4095)
    dark, _ = _source(folder).fetch(np.array([0]))
    full, _ = _source(folder, white_level=4095).fetch(np.array([0]))
    assert (int(dark.max()), int(full.max())) == (16, 255)
    with pytest.raises(BadInputError, match="--white-level 4095 has no effect: no image is 16-bit grey"):
        _source(_write(tmp_path / "bytes", brightest=255, dtype=np.uint8), white_level=4095)


def test_rules_measure_the_level(tmp_path: Path) -> None:
    asked = Recipe(
        dataset="image-folder", data_dir=str(_write(tmp_path / "own", brightest=4095)), model="cifar_resnet8"
    )
    found = fingerprint_of(asked)
    assert (found.white_level, found.channels) == (4095, 1)
    assert 0.45 < found.mean[0] < 0.55
    typed = fingerprint_of(asked.model_copy(update={"white_level": 8191}))
    assert typed.white_level == 8191
    assert typed.mean[0] == pytest.approx(found.mean[0] / 2, abs=0.01)


def test_a_run_predicts_by_its_level(tmp_path: Path) -> None:
    folder = _write(tmp_path / "own", brightest=4095)
    drivetrain.train(
        dataset="image-folder",
        data_dir=str(folder),
        auto="off",
        model="cifar_resnet8",
        channels=1,
        image_size=12,
        white_level=4095,
        micro_batch_size=2,
        max_updates=1,
        device="cpu",
        output_dir=str(tmp_path / "run"),
        quiet=True,
    )
    image = read_image(folder / "ant" / "0.png", open_trained_run(tmp_path / "run", device="cpu"))
    assert int(image.max()) == 255
