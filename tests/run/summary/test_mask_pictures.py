"""What a run sees in its validation images, as masks."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from drivetrain.data.masks.masked_images import HeldMaskedImages
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.data.training_tiles import UniformSource
from drivetrain.devices.device import choose_device
from drivetrain.passes.forward import choose_precision
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.schema import Recipe
from drivetrain.run.summary import mask_pictures
from drivetrain.store.directory import RunDirectory
from drivetrain.tasks.segmentation_evaluation import SegmentationEvaluation

SPEC = DataSpec(
    channels=1,
    height=12,
    width=12,
    num_classes=2,
    class_names=("dark", "bright"),
    image_dtype="uint8",
    normalisation="symmetric",
    task="segmentation",
)


class Brightness(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([-images, images], dim=1)


def _splits(errors: list[int]) -> DataSplits:
    """Noise, whose masks are right but for so many pixels of each image; border weights lie behind them."""
    images = np.random.default_rng(0).integers(0, 256, (len(errors), 12, 12, 1), dtype=np.uint8)
    masks = np.concatenate([images > 127, np.full_like(images, 9)], axis=3).astype(np.uint8)
    for mask, wrong in zip(masks, errors, strict=True):
        mask[..., 0].flat[:wrong] ^= 1
    names = tuple(f"image {index}" for index in range(len(errors)))
    source = UniformSource(HeldMaskedImages(images=images, masks=masks, names=names))
    return DataSplits(train=source, validation=source, test=None, spec=SPEC)


def _evaluation(data: DataSplits) -> SegmentationEvaluation:
    """What a validation of all images finds."""
    assert data.validation is not None
    images, masks = data.validation.fetch(np.arange(len(data.validation)))
    cells = (masks[..., 0].astype(np.int64) * 2 + (images[..., 0] > 127)).reshape(len(images), -1)
    confusions = np.stack([np.bincount(own, minlength=4).reshape(2, 2) for own in cells])
    return SegmentationEvaluation(
        class_names=SPEC.class_names,
        losses=np.zeros(len(images)),
        class_dice=np.zeros((len(images), 2)),
        confusions=confusions,
    )


def _draw(directory: Path, data: DataSplits, *, is_measured: bool = True) -> None:
    recipe, device = Recipe(model="tests:Brightness"), choose_device("cpu")
    program = SimpleNamespace(model=Brightness(), precision=choose_precision(recipe, device), device=device)
    mask_pictures.draw_mask_predictions(
        RunDirectory(directory),
        recipe=recipe,
        program=cast(TrainingProgram, program),
        data=data,
        spec=SPEC,
        evaluation=_evaluation(data) if is_measured else None,
    )


@pytest.mark.parametrize(
    ("errors", "shown", "title"),
    [
        (
            [0, 9, 1, 8, 2, 7, 3, 6, 4],
            [1, 3, 5, 8, 6, 4],
            "The worst 3 of 9 validation images (by hard Dice of the foreground), then typical ones",
        ),
        ([0, 5], [1, 0], "All 2 validation images, worst first (by hard Dice of the foreground)"),
        (
            [0, 50, *[0] * 43, 60, 0, 3],
            [45, 1, 47, 22, 23, 24],
            "The worst 3 of 48 validation images (by hard Dice of the foreground), then typical ones",
        ),
    ],
)
def test_the_worst_of_all_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: list[int], shown: list[int], title: str
) -> None:
    sheets = _kept_sheets(monkeypatch)
    _draw(tmp_path, _splits(errors))
    assert sheets[0]["names"] == [f"image {index}" for index in shown]
    assert sheets[0]["title"] == title


def test_a_large_background_hides_no_bad_foreground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Image 4 misses its only bright pixel, the others more pixels of many: by the mean over classes it would
    be the best."""
    data = _splits([20, 22, 24, 26, 0])
    source = cast(HeldMaskedImages, cast(UniformSource, data.validation).masked)
    source.images[4], source.masks[4] = 0, 0
    source.masks[4, 3, 3, 0] = 1
    sheets = _kept_sheets(monkeypatch)
    _draw(tmp_path, data)
    assert sheets[0]["names"][0] == "image 4"


def test_without_a_validation_some_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sheets = _kept_sheets(monkeypatch)
    _draw(tmp_path, _splits([0] * 47 + [3]), is_measured=False)
    assert sheets[0]["names"] == [f"image {index}" for index in (0, 2, 4, 24, 26, 28)]
    assert "The worst 3 of 24 of 48 validation images" in sheets[0]["title"]


def _kept_sheets(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    sheets: list[dict[str, Any]] = []

    def sheet(*_: Any, **options: Any) -> bytes:
        sheets.append(options)
        return b""

    monkeypatch.setattr(mask_pictures, "overlay_sheet", sheet)
    return sheets


def test_the_picture_lies_with_the_predictions(tmp_path: Path) -> None:
    _draw(tmp_path, _splits([0, 1, 2, 3, 4]))
    picture = Image.open(tmp_path / "predictions" / "validation.png")
    assert picture.width > 4 * 320
    assert picture.height > 5 * 320
