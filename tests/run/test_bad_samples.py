"""Bad files and pixels: found before the first update they are bad input, found later a failed run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

import drivetrain
from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError, DrivetrainError
from tests.data.folders import truncate, write_images
from tests.data.mask_files import write_pairs

pytestmark = pytest.mark.usefixtures("no_pictures")

ASKED: dict[str, Any] = {
    "model": "cifar_resnet8",
    "num_epochs": 1,
    "micro_batch_size": 2,
    "num_threads": 1,
    "compile": "off",
}


def _options(**options: object) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in {**ASKED, **options}.items()]


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("gone.png")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _text(path: Path) -> None:
    path.write_text("no image")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, "cannot be read"),
        (_empty, "the file is empty"),
        (_text, "not an image in a supported format"),
        (_dangling, "it is a symbolic link to gone.png, which does not exist"),
    ],
)
@pytest.mark.parametrize("size", [[], ["--image-size=8"]])
def test_photographs_that_lie_in_memory_are_read_before_anything_is_written(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], object],
    words: str,
    size: list[str],
) -> None:
    folder = write_images(tmp_path / "photos", {"cat": 5, "dog": 5})
    for name in ("cat", "dog"):
        damage(folder / name / "003.png")
    options = _options(dataset="image-folder", data_dir=folder, output_dir=tmp_path / "run")
    assert main(["train", *options, *size]) == 2
    said = capsys.readouterr().err
    assert "003.png" in said
    assert words in said
    assert not (tmp_path / "run").exists()


def test_photographs_that_are_streamed_fail_when_they_are_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_images(tmp_path / "photos", {"cat": 20, "dog": 20})
    for number in range(15, 20):  # The first few samples are looked at before the first update.
        truncate(folder / "dog" / f"{number:03}.png")
    options = _options(dataset="image-folder", data_dir=folder, output_dir=tmp_path / "run")
    # Rules look at the images and would refuse them before the training.
    streamed = ["--data-placement=stream", "--num-workers=0", "--image-size=8", "--auto=off"]
    assert main(["train", *options, *streamed]) == 1
    assert "use --on-bad-sample skip to leave out unreadable samples" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["images", "masks"])
def test_a_dangling_link_among_images_with_masks(
    tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_pairs(tmp_path / "cells")
    _dangling(folder / part / "1.png")
    assert main(["train", f"--data-dir={folder}", "--dataset=mask-folder", "--model=unet_same"]) == 2
    assert "it is a symbolic link to gone.png, which does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_pixels_that_are_not_finite_are_named(tmp_path: Path, value: float) -> None:
    images = np.random.default_rng(0).random((12, 8, 8, 3), dtype=np.float32)
    images[7, 3, 3, 1] = value
    with pytest.raises(
        BadInputError, match=r"sample 7 contains pixels that are not finite \(NaN or infinity\)"
    ):
        drivetrain.train(data=(images, np.arange(12) % 2), output_dir=str(tmp_path / "run"), **ASKED)
    masks = np.zeros((12, 8, 8), dtype=np.uint8)
    masks[:, :4] = 1
    with pytest.raises(BadInputError, match="sample 7 contains pixels that are not finite"):
        drivetrain.train(
            data=(images, masks), output_dir=str(tmp_path / "run"), **{**ASKED, "model": "unet_same"}
        )
    assert not (tmp_path / "run").exists()


def test_pixels_that_float32_cannot_hold() -> None:
    images = np.zeros((4, 8, 8, 3))
    images[2] = 1e300
    with pytest.raises(BadInputError, match="sample 2 contains pixels that are not finite"):
        drivetrain.train(data=(images, np.arange(4) % 2), **ASKED)


class Ramp(Dataset[tuple[torch.Tensor, int]]):
    """Of its samples one is not finite."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.full((3, 8, 8), index / 12)
        if index == 9:
            image[0, 0, 0] = torch.nan
        return image, index % 2


@pytest.mark.parametrize("placed", [{}, {"data_placement": "stream", "num_workers": 0}])
def test_data_sets_of_a_user_are_looked_at_sample_by_sample(tmp_path: Path, placed: dict[str, Any]) -> None:
    with pytest.raises(DrivetrainError, match="sample 9 contains pixels that are not finite"):
        drivetrain.train(
            data=Ramp(), validation_fraction=0.2, output_dir=str(tmp_path / "run"), **placed, **ASKED
        )


def test_a_single_class_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_images(tmp_path / "photos", {"cat": 6})
    options = _options(dataset="image-folder", data_dir=folder, output_dir=tmp_path / "run")
    assert main(["train", *options]) == 2
    assert "has a single class, cat, so there is nothing to distinguish" in capsys.readouterr().err
    assert main(["data", "check", "image-folder", f"--data-dir={folder}"]) == 0
    assert "All images belong to one class, cat" in capsys.readouterr().err
    assert main(["data", "pack", str(folder), str(tmp_path / "pack")]) == 0
    assert main(["train", *options, "--dataset=packed", f"--data-dir={tmp_path / 'pack'}"]) == 2
    images = np.zeros((6, 8, 8, 3), dtype=np.uint8)
    with pytest.raises(BadInputError, match="the data have a single class, 0"):
        drivetrain.train(data=(images, np.zeros(6, dtype=np.int64)), **ASKED)
    assert not (tmp_path / "run").exists()


def test_one_class_of_several_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_images(tmp_path / "photos", {"cat": 6})
    (folder / "dog").mkdir()
    options = _options(dataset="image-folder", data_dir=folder, output_dir=tmp_path / "run")
    assert main(["train", *options, "--validation-fraction=0"]) == 0
    assert "All 6 training samples belong to class cat" in capsys.readouterr().out
    images = np.zeros((4, 16, 16, 1), dtype=np.uint8)
    drivetrain.train(
        data=(images, np.zeros((4, 16, 16), dtype=np.uint8)),
        output_dir=str(tmp_path / "masks"),
        **{**ASKED, "model": "unet_same", "model_width": 4},
    )
    assert "Every pixel of the training masks is of class 0" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["gif", "webp", "png"])
def test_animations_are_said_to_be_some(tmp_path: Path, suffix: str) -> None:
    from drivetrain.data.splits import open_data
    from drivetrain.recipe.schema import Recipe

    random = np.random.default_rng(0)
    frames = [Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)) for _ in range(3)]
    folder = write_images(tmp_path / "photos", {"cat": 2, "dog": 2})
    frames[0].save(folder / "cat" / f"moving.{suffix}", save_all=True, append_images=frames[1:])
    frames[0].save(folder / "cat" / f"still.{suffix}")
    (warning,) = open_data(
        Recipe(dataset="image-folder", data_dir=str(folder), validation_fraction=0.0)
    ).warnings
    assert warning == (f"{folder}/cat/moving.{suffix} is an animation; only the first frame is used.")
    cells = write_pairs(tmp_path / "cells", count=2)
    for name in ("0", "1"):
        path = cells / "images" / f"{name}.png"
        size = Image.open(path).size
        path.unlink()
        small = [frame.resize(size) for frame in frames]
        small[0].save(path.with_suffix(f".{suffix}"), save_all=True, append_images=small[1:])
    (warning,) = open_data(Recipe(dataset="mask-folder", data_dir=str(cells))).warnings
    assert warning.endswith("are animations (2 files); only the first frame is used.")
