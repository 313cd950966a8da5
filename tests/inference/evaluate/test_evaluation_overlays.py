"""Pictures of what an evaluation measured."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tests.run.segments import TILES, segment, write_shapes
from tests.run.small_training import TrainSmall

import drivetrain
from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.inference.evaluate import evaluation_overlays

pytestmark = pytest.mark.usefixtures("no_pictures")

Sheet = tuple[NDArray[Any], NDArray[Any], NDArray[Any], str]


@pytest.fixture
def sheets(monkeypatch: pytest.MonkeyPatch) -> list[Sheet]:
    """What would have been painted: image, truth, prediction and name of each."""
    seen: list[Sheet] = []

    def sheet(images: Any, truths: Any, predictions: Any, *, names: Any, class_names: Any) -> bytes:
        assert len(class_names) == 2
        seen.append((images[0], truths[0], predictions[0], names[0]))
        return b""

    monkeypatch.setattr(evaluation_overlays, "overlay_sheet", sheet)
    return seen


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("geometry", ["scaled", "tiles", "valid"])
def test_what_was_measured_is_painted(tmp_path: Path, sheets: list[Sheet], geometry: str) -> None:
    """Pixel accuracies of the painted masks are those of the table, image by image."""
    options: dict[str, Any] = {
        "scaled": {},
        "tiles": TILES,
        "valid": {"model": "unet", "model_params": {}, "image_size": 20, "max_updates": 1},
    }[geometry]
    segment(tmp_path / "run", num_epochs=1, **options)
    (plain,) = drivetrain.evaluate(tmp_path / "run", device="cpu")
    assert not sheets
    (row,) = drivetrain.evaluate(tmp_path / "run", device="cpu", overlay=True)
    assert row == plain
    count = row["samples"]
    assert [name for *_, name in sheets] == [f"synthetic-em validation {index}" for index in range(count)]
    sizes = {masks[0].shape for masks in ((truth, found) for _, truth, found, _ in sheets)}
    assert sizes == {{"scaled": (32, 32), "tiles": (128, 128), "valid": (20, 20)}[geometry]}
    right = [(truth == found).mean() for _, truth, found, _ in sheets]
    assert np.mean(right) == pytest.approx(row["pixel_accuracy"], abs=1e-9)
    folder = tmp_path / "run" / "predictions" / "evaluation-validation"
    assert _names(folder) == sorted(f"synthetic-em-validation-{index}-overlay.png" for index in range(count))


def test_only_the_last_checkpoint_is_painted(tmp_path: Path, sheets: list[Sheet]) -> None:
    balanced = {"class_weights": "balanced", "model_params": {"depth": 1, "norm": "batch"}}
    segment(tmp_path / "run", checkpoint_every=6, num_epochs=8, optimizer="adam", **balanced)
    rows = drivetrain.evaluate(tmp_path / "run", checkpoint="all", device="cpu", overlay=True)
    assert len(rows) > 1
    assert len(sheets) == rows[-1]["samples"]
    right = np.mean([(truth == found).mean() for _, truth, found, _ in sheets])
    assert right == pytest.approx(rows[-1]["pixel_accuracy"], abs=1e-9)
    assert right != pytest.approx(rows[0]["pixel_accuracy"], abs=1e-9)


def test_pictures_of_a_folder_of_odd_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_shapes(tmp_path / "shapes", sizes=((400, 360), (41, 33), (50, 29), (33, 61)))
    (folder / "images" / "0.png").rename(folder / "images" / "a.png")
    (folder / "masks" / "0.png").rename(folder / "masks" / "a.png")
    own = {"dataset": "mask-folder", "data_dir": str(folder), "dataset_size": None, "image_size": None}
    segment(
        tmp_path / "run",
        **{**own, "tile_size": 16, "max_updates": 1, "micro_batch_size": 1, "num_workers": 0},
    )
    path = tmp_path / "run" / "predictions" / "evaluation-train"
    for _ in range(2):
        asked = ["evaluate", str(tmp_path / "run"), "--split", "train", "--overlay", "--device", "cpu"]
        assert main(asked) == 0
        said = capsys.readouterr().out
        assert f"overlays of 3 images at update 1: {path}\n" in said
        assert len(_names(path)) == 3
        assert set(_names(path)) < {f"{name}-overlay.png" for name in ("a", "1", "2", "3")}
        (path / "gone-overlay.png").write_bytes(b"of an image that is not measured any more")
        (path / "notes.txt").write_text("mine")
        sizes = [Image.open(picture).size for picture in path.glob("[a123]-overlay.png")]
        assert all(width > 4 * 150 and height > 150 for width, height in sizes)
        (path / "notes.txt").unlink()
    assert main(["evaluate", str(tmp_path / "run"), "--split", "train", "--device", "cpu"]) == 0
    assert "overlays" not in capsys.readouterr().out


def test_a_classifier_has_none(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", max_updates=2)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        BadInputError, match=r"^--overlay is for runs that predict masks, .*; leave it out\.$"
    ):
        drivetrain.evaluate(tmp_path / "run", overlay=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("/data/images/a b.png", "a b"),
        ("cells.v2.TIFF", "cells.v2"),
        ("/data/train-volume.tif page 3", "train-volume.tif-page-3"),
        ("image 7", "image-7"),
    ],
)
def test_pictures_are_called_as_their_images(name: str, stem: str) -> None:
    assert evaluation_overlays._stem(name) == stem
