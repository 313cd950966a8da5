"""Whole trainings end with the same weights, whatever travels to the device."""

from pathlib import Path
from typing import Any

import pytest

import drivetrain
from tests.data.folders import write_images
from tests.run.segments import write_shapes
from tests.run.small_runs import weights

FORMS: tuple[dict[str, Any], ...] = (
    {"accelerator_side_preprocess": False},
    {"accelerator_side_preprocess": True},
    {"accelerator_side_preprocess": True, "eight_bit_transfer": True},
)
DIGITS: dict[str, Any] = {
    "dataset": "digits",
    "model": "mnist_cnn",
    "image_size": 12,
    "limit_train_samples": 24,
    "micro_batch_size": 4,
    "augment": True,
    "mixup": 0.2,
}
FOLDER: dict[str, Any] = {
    "dataset": "image-folder",
    "model": "mnist_cnn",
    "image_size": 12,
    "micro_batch_size": 4,
    "random_resized_crop": 0.3,
}
TILES: dict[str, Any] = {
    "dataset": "mask-folder",
    "model": "unet_same",
    "model_width": 2,
    "model_params": {"depth": 1},
    "micro_batch_size": 2,
    "tile_size": 16,
    "rotate": 30,
}


def _write(folder: Path, options: dict[str, Any]) -> dict[str, str]:
    """The files that the data set reads, where it reads any."""
    if options is FOLDER:
        write_images(folder / "train", {"a": 6, "b": 6}, sizes=((20, 16), (14, 18)))
    elif options is TILES:
        write_shapes(folder)
    return {} if options is DIGITS else {"data_dir": str(folder)}


def _are_equal(one: Path, other: Path) -> bool:
    found = weights(other)
    return all(found[name].tobytes() == value.tobytes() for name, value in weights(one).items())


@pytest.mark.usefixtures("one_thread", "no_pictures")
@pytest.mark.parametrize("options", [DIGITS, FOLDER, TILES], ids=["digits", "folder", "tiles"])
def test_the_form_of_transfer_changes_no_bit(tmp_path: Path, options: dict[str, Any]) -> None:
    place = _write(tmp_path / "images", options)
    shared = {"num_workers": 0, "data_placement": "stream", "device": "cpu", "seed": 5, **options, **place}
    shared |= {"max_updates": 3, "num_epochs": 3, "validation": False}
    for number, form in enumerate(FORMS):
        drivetrain.train(quiet=True, output_dir=str(tmp_path / str(number)), **shared, **form)
    for number in (1, 2):
        assert _are_equal(tmp_path / "0", tmp_path / str(number))
    drivetrain.train(quiet=True, output_dir=str(tmp_path / "other"), **{**shared, "seed": 6}, **FORMS[2])
    assert not _are_equal(tmp_path / "0", tmp_path / "other")
