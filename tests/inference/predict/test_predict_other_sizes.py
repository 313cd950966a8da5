"""Masks for images of another size than those that `--image-size` scaled in training."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.nn import functional as F

from drivetrain.console.reporter import Reporter
from drivetrain.data.preprocess import build_preparation
from drivetrain.data.source import DataSpec
from drivetrain.devices.device import choose_device
from drivetrain.inference.model.restore import TrainedRun
from drivetrain.inference.predict.mask_settings import MaskSettings
from drivetrain.inference.predict.predict_masks import predict_masks
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import RunDirectory

SPEC = DataSpec(
    channels=1,
    height=32,
    width=48,
    num_classes=2,
    class_names=("dark", "bright"),
    image_dtype="uint8",
    normalisation="symmetric",
    task="segmentation",
    mask_values=((0,), (255,)),
)
PROBABILITIES = MaskSettings(overlay=False, probabilities=True)


def _run(tmp_path: Path, *, kernel: int) -> TrainedRun:
    """Images of 32x48 were scaled to 16x16 for its one convolution."""
    torch.manual_seed(1)
    recipe = Recipe(model="tests:convolution", dataset="mask-folder", image_size=16)
    return TrainedRun(
        directory=RunDirectory(tmp_path / "run"),
        recipe=recipe,
        spec=SPEC,
        preprocess=build_preparation(recipe, SPEC),
        model=nn.Conv2d(1, 2, kernel, padding=kernel // 2),
        device=choose_device("cpu"),
    )


@pytest.fixture
def run(tmp_path: Path) -> TrainedRun:
    """A run whose model looks at one pixel at a time, so that no tile has a border."""
    return _run(tmp_path, kernel=1)


def _predicted(
    run: TrainedRun, tmp_path: Path, *sizes: tuple[int, int], settings: MaskSettings = PROBABILITIES
) -> list[NDArray[np.float32]]:
    (tmp_path / "in").mkdir(exist_ok=True)
    files = [tmp_path / "in" / f"{number}.png" for number in range(len(sizes))]
    for size, path in zip(sizes, files, strict=True):
        Image.fromarray(_pixels(size)).save(path)
    with Reporter() as reporter:
        predict_masks(run, files, output=tmp_path / "out", reporter=reporter, settings=settings)
    return [tifffile.imread(tmp_path / "out" / f"{path.stem}-probabilities.tif") for path in files]


def _pixels(size: tuple[int, int]) -> NDArray[np.uint8]:
    return np.random.default_rng(3).integers(0, 256, size, dtype=np.uint8)


def _by_hand(run: TrainedRun, size: tuple[int, int], *, scaled: tuple[int, int]) -> NDArray[np.float32]:
    image = torch.from_numpy(_pixels(size)).float()[None, None] / 127.5 - 1
    with torch.no_grad():
        logits = run.model(F.interpolate(image, size=scaled, mode="bilinear", align_corners=False))
        back = F.interpolate(logits, size=size, mode="bilinear", align_corners=False)
        planes: NDArray[np.float32] = back.softmax(1)[0].numpy()
    return planes


@pytest.mark.parametrize("size", [(128, 144), (64, 60), (16, 24)])
def test_another_size_is_scaled_by_the_trainings_factors(
    run: TrainedRun, tmp_path: Path, size: tuple[int, int]
) -> None:
    (found,) = _predicted(run, tmp_path, size)
    expected = _by_hand(run, size, scaled=(size[0] // 2, size[1] // 3))
    assert found.shape == (2, *size)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    squeezed = _by_hand(run, size, scaled=(16, 16))
    assert np.abs(found - squeezed).max() > 0.01


def test_the_trainings_size_is_as_it_was(
    run: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = _predicted(run, tmp_path, (32, 48))
    np.testing.assert_allclose(found, _by_hand(run, (32, 48), scaled=(16, 16)), rtol=0, atol=1e-6)
    assert "scaled" not in capsys.readouterr().out


def test_it_is_said_once(run: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _predicted(run, tmp_path, (32, 48), (64, 48), (40, 40))
    said = [line for line in capsys.readouterr().out.splitlines() if "scaled" in line]
    assert said == [
        "images of other sizes than 32x48, the size of the training images, are scaled by the training's "
        "factors 0.5 (height) and 0.333 (width) and predicted in overlapping tiles"
    ]


def test_flips_and_overlap_are_as_asked(tmp_path: Path) -> None:
    """A larger kernel looks beyond the borders of tiles, and is not its own mirror image."""
    run = _run(tmp_path, kernel=5)
    plain, flipped, wide = (
        _predicted(run, tmp_path, (128, 144), settings=settings)[0]
        for settings in (
            PROBABILITIES,
            MaskSettings(overlay=False, probabilities=True, flips=True),
            MaskSettings(overlay=False, probabilities=True, tile_overlap=0.75),
        )
    )
    assert np.abs(plain - flipped).max() > 1e-3
    assert np.abs(plain - wide).max() > 1e-3
