"""Masks for image files of any size."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.data.preprocess import build_preparation
from drivetrain.data.source import DataSpec
from drivetrain.devices.device import choose_device
from drivetrain.inference.model.restore import TrainedRun
from drivetrain.inference.predict import predict
from drivetrain.inference.predict.inputs import InputNotes
from drivetrain.inference.predict.mask_settings import MaskSettings
from drivetrain.inference.predict.predict_masks import predict_masks
from drivetrain.inference.predict.prediction_folder import noted_files
from drivetrain.recipe.schema import Recipe
from drivetrain.store.checkpoint import Checkpoint
from drivetrain.store.directory import RunDirectory

CHECKPOINT = Checkpoint(path=Path(), manifest={"update": 3, "state": {}}, model={}, optimiser={}, averaged={})

PLAIN = MaskSettings(overlay=False)


class Brightness(nn.Module):
    """Says `bright` where a pixel is brighter than the middle."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, images: Tensor) -> Tensor:
        light = images.mean(1, keepdim=True)
        others = [torch.full_like(light, -100.0)] * (self.classes - 2)
        return torch.cat([-light, light, *others], dim=1)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., TrainedRun]:
    def make(
        *,
        mask_values: tuple[tuple[int, ...], ...] = ((0,), (255,)),
        tile: int | None = 16,
        **options: Any,
    ) -> TrainedRun:
        spec = DataSpec(
            channels=1,
            height=16,
            width=16,
            num_classes=max(2, len(mask_values)),
            class_names=("dark", "bright", "other")[: max(2, len(mask_values))],
            image_dtype="uint8",
            normalisation="symmetric",
            task="segmentation",
            mask_values=mask_values,
            tile=tile,
        )
        recipe = Recipe(model="tests:Brightness", **options)
        return TrainedRun(
            directory=RunDirectory(tmp_path / "run"),
            recipe=recipe,
            spec=spec,
            preprocess=build_preparation(recipe, spec),
            model=Brightness(spec.num_classes),
            device=choose_device("cpu"),
        )

    return make


def _predict(
    run: TrainedRun, files: list[Path], output: Path, settings: MaskSettings = PLAIN, **options: Any
) -> list[dict[str, Any]]:
    with Reporter(quiet=True) as reporter:
        return predict_masks(run, files, output=output, reporter=reporter, settings=settings, **options)


def _noise(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("size", [(16, 16), (40, 61), (5, 9), (1, 30)])
@pytest.mark.parametrize("flips", [False, True])
def test_an_image_of_any_size_gets_a_mask_in_the_training_masks_coding(
    make_run: Callable[..., TrainedRun], tmp_path: Path, size: tuple[int, int], flips: bool
) -> None:
    pixels = _noise(*size)
    Image.fromarray(pixels).save(tmp_path / "cells.png")
    (row,) = _predict(
        make_run(), [tmp_path / "cells.png"], tmp_path / "out", MaskSettings(overlay=False, flips=flips)
    )
    mask = np.asarray(Image.open(tmp_path / "out" / "cells-mask.png"))
    assert np.array_equal(mask, np.where(pixels > 127, 255, 0))
    assert (row["height"], row["width"], row["mask"]) == (*size, "cells-mask.png")
    assert row["shares"]["bright"] == pytest.approx((pixels > 127).mean(), abs=1e-6)
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == [
        "cells-mask.png",
        "predictions.csv",
    ]


def test_pages_keep_their_order_and_number(make_run: Callable[..., TrainedRun], tmp_path: Path) -> None:
    pages = _noise(3, 20, 33)
    tifffile.imwrite(tmp_path / "stack.tif", pages, photometric="minisblack")
    settings = MaskSettings(probabilities=True)
    rows = _predict(make_run(), [tmp_path / "stack.tif"], tmp_path / "out", settings)
    assert [row["page"] for row in rows] == [1, 2, 3]
    masks = tifffile.imread(tmp_path / "out" / "stack-mask.tif")
    assert np.array_equal(masks, np.where(pages > 127, 255, 0))
    planes = tifffile.imread(tmp_path / "out" / "stack-probabilities.tif").reshape(3, 2, 20, 33)
    assert planes.dtype == np.float32
    light = pages / 127.5 - 1
    np.testing.assert_allclose(planes[:, 1], 1 / (1 + np.exp(-2 * light)), atol=1e-5)
    np.testing.assert_allclose(planes.sum(1), 1, atol=1e-5)
    overlays = sorted(path.name for path in (tmp_path / "out").glob("*overlay*"))
    assert overlays == [f"stack-overlay-page-{page}.png" for page in (1, 2, 3)]


def test_colours_and_tiff_on_request(make_run: Callable[..., TrainedRun], tmp_path: Path) -> None:
    pixels = _noise(20, 20)
    Image.fromarray(pixels).save(tmp_path / "cells.png")
    run = make_run(mask_values=((9, 8, 7), (255, 0, 0), (0, 0, 255)))
    settings = MaskSettings(mask_format="tiff")
    _predict(run, [tmp_path / "cells.png"], tmp_path / "out", settings, formats=("csv", "json"))
    mask = tifffile.imread(tmp_path / "out" / "cells-mask.tif")
    assert np.array_equal(mask, np.array([(9, 8, 7), (255, 0, 0)])[(pixels > 127).astype(int)])
    assert (tmp_path / "out" / "cells-overlay.png").is_file()
    (row,) = json.loads((tmp_path / "out" / "predictions.json").read_text())
    with (tmp_path / "out" / "predictions.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert list(line) == [
        "file",
        "page",
        "height",
        "width",
        "mask",
        "share_dark",
        "share_bright",
        "share_other",
    ]
    assert float(line["share_bright"]) == row["shares"]["bright"]


def test_images_are_scaled_where_training_scaled_them(
    make_run: Callable[..., TrainedRun], tmp_path: Path
) -> None:
    pixels = np.zeros((40, 60), np.uint8)
    pixels[:, 30:] = 255
    Image.fromarray(pixels).save(tmp_path / "half.png")
    _predict(make_run(tile=None, image_size=16), [tmp_path / "half.png"], tmp_path / "out")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "out" / "half-mask.png")), pixels)


def test_inputs_of_one_name_do_not_overwrite_each_other(
    make_run: Callable[..., TrainedRun], tmp_path: Path
) -> None:
    files = []
    for folder, value in (("a", 0), ("b", 255)):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "x.png")
        Image.new("L", (20, 20), value).save(files[-1])
    rows = _predict(make_run(), files, tmp_path / "out")
    assert [row["mask"] for row in rows] == ["x-mask.png", "x-2-mask.png"]
    values = [np.asarray(Image.open(tmp_path / "out" / row["mask"])).max() for row in rows]
    assert values == [0, 255]


def test_broken_inputs_are_left_out_and_noted(make_run: Callable[..., TrainedRun], tmp_path: Path) -> None:
    good, cut, sizes = (tmp_path / name for name in ("good.png", "cut.png", "sizes.tif"))
    Image.fromarray(_noise(20, 20)).save(good)
    cut.write_bytes(good.read_bytes()[:-60])
    with tifffile.TiffWriter(sizes) as tiff:
        for side in (20, 10):
            tiff.write(_noise(side, side), metadata=None, contiguous=False)
    notes = InputNotes()
    (row,) = _predict(make_run(), [cut, good, sizes], tmp_path / "out", notes=notes)
    assert row["file"] == str(good)
    assert not [path for path in (tmp_path / "out").iterdir() if "cut" in path.name or "sizes" in path.name]
    assert list(notes.left_out) == [cut, sizes]
    (sentence,) = notes.sentences(files=3)
    assert sentence.startswith(f"2 of 3 files cannot be read and get no prediction: {cut} (")
    assert "sizes.tif has pages of differing sizes" in sentence


def test_nothing_is_written_where_every_input_is_broken(
    make_run: Callable[..., TrainedRun], tmp_path: Path
) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"no image")
    files = [tmp_path / name for name in ("a.png", "b.png", "a.png")]
    said = r"INPUT .*a\.png cannot be read as an image .*; replace it with an undamaged PNG, JPEG"
    with pytest.raises(BadInputError, match=said):
        _predict(make_run(), files, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_animation_is_said_to_be_one(make_run: Callable[..., TrainedRun], tmp_path: Path) -> None:
    frames = [Image.fromarray(_noise(20, 20)), Image.new("L", (20, 20))]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "still.gif")
    notes = InputNotes()
    rows = _predict(
        make_run(), [tmp_path / "moving.gif", tmp_path / "still.gif"], tmp_path / "out", notes=notes
    )
    assert len(rows) == 2
    assert notes.sentences(files=2) == [
        f"{tmp_path}/moving.gif is an animation; only the first frame is used."
    ]


def test_the_inputs_own_folder_is_not_written_into(
    make_run: Callable[..., TrainedRun], tmp_path: Path
) -> None:
    Image.fromarray(_noise(20, 20)).save(tmp_path / "x.png")
    (tmp_path / "x-mask.png").write_bytes(b"by hand")
    with pytest.raises(BadInputError, match=r"--output .* is the folder of INPUT"):
        _predict(make_run(), [tmp_path / "x.png"], tmp_path)
    assert (tmp_path / "x-mask.png").read_bytes() == b"by hand"


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """A stack of three pages and an image."""
    (tmp_path / "in").mkdir()
    tifffile.imwrite(tmp_path / "in" / "stack.tif", _noise(3, 20, 33), photometric="minisblack")
    Image.fromarray(_noise(20, 20)).save(tmp_path / "in" / "x.png")
    return [tmp_path / "in" / "stack.tif", tmp_path / "in" / "x.png"]


EVERYTHING = MaskSettings(probabilities=True)


every_kind_of_file = pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("x-mask.png", PLAIN),
        ("stack-mask.tif", PLAIN),
        ("x-mask.tif", MaskSettings(mask_format="tiff")),
        ("stack-mask-page-2.png", MaskSettings(mask_format="png")),
        ("x-overlay.png", EVERYTHING),
        ("stack-overlay-page-3.png", EVERYTHING),
        ("stack-probabilities.tif", EVERYTHING),
        ("predictions.csv", PLAIN),
    ],
)


@every_kind_of_file
def test_a_file_that_predict_did_not_write_is_not_overwritten(
    make_run: Callable[..., TrainedRun], tmp_path: Path, inputs: list[Path], name: str, settings: MaskSettings
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(b"by hand")
    with pytest.raises(
        BadInputError, match=rf"^--output .*out contains {name}, .*; --output .*out-2 works\.$"
    ):
        _predict(make_run(), inputs, tmp_path / "out", settings)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]
    assert (tmp_path / "out" / name).read_bytes() == b"by hand"


def test_negative_control_a_file_of_another_name_may_lie_there(
    make_run: Callable[..., TrainedRun], tmp_path: Path, inputs: list[Path]
) -> None:
    (tmp_path / "out").mkdir()
    for name in ("y-mask.png", "x-overlay.png", "predictions.json"):
        (tmp_path / "out" / name).write_bytes(b"by hand")
    _predict(make_run(), inputs, tmp_path / "out")
    assert (tmp_path / "out" / "y-mask.png").read_bytes() == b"by hand"
    assert (tmp_path / "out" / "x-mask.png").read_bytes() != b"by hand"


@pytest.mark.parametrize("settings", [PLAIN, EVERYTHING, MaskSettings(mask_format="png")])
def test_all_that_is_written_is_noted_and_may_be_written_again(
    make_run: Callable[..., TrainedRun], tmp_path: Path, inputs: list[Path], settings: MaskSettings
) -> None:
    rows = _predict(make_run(), inputs, tmp_path / "out", settings)
    written = {path.name for path in (tmp_path / "out").glob("[!.]*")}
    assert noted_files(tmp_path / "out") == written
    assert _predict(make_run(), inputs, tmp_path / "out", settings) == rows
    _predict(make_run(), inputs[:1], tmp_path / "out", settings)
    assert noted_files(tmp_path / "out") == written


@every_kind_of_file
def test_a_file_that_was_changed_since_is_not_overwritten(
    make_run: Callable[..., TrainedRun],
    tmp_path: Path,
    inputs: list[Path],
    name: str,
    settings: MaskSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _predict(make_run(), inputs, tmp_path / "out", settings)
    (tmp_path / "out" / name).write_bytes(b"by hand")
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("drivetrain.inference.predict.predict_masks.image_logits", None)
        with pytest.raises(BadInputError, match=rf"contains {name}, which was changed .*out-2 works\.$"):
            _predict(make_run(), inputs, tmp_path / "out", settings)
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    (tmp_path / "out" / name).unlink()
    _predict(make_run(), inputs, tmp_path / "out", settings)
    assert (tmp_path / "out" / name).read_bytes() != b"by hand"


def test_an_interrupted_predict_can_be_repeated(
    make_run: Callable[..., TrainedRun], tmp_path: Path, inputs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("drivetrain.inference.predict.predict_masks._as_csv", interrupt)
        with pytest.raises(KeyboardInterrupt):
            _predict(make_run(), inputs, tmp_path / "out")
    assert (tmp_path / "out" / "x-mask.png").is_file()
    assert not (tmp_path / "out" / "predictions.csv").exists()
    assert len(_predict(make_run(), inputs, tmp_path / "out")) == 4


def test_an_output_that_is_a_file(make_run: Callable[..., TrainedRun], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    Image.fromarray(_noise(20, 20)).save(tmp_path / "in" / "x.png")
    (tmp_path / "out").write_text("")
    with pytest.raises(BadInputError, match=r"--output .*out cannot be written"):
        _predict(make_run(), [tmp_path / "in" / "x.png"], tmp_path / "out")


def test_predict_chooses_by_the_runs_task(
    make_run: Callable[..., TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from drivetrain.cli.main import main

    monkeypatch.setattr(predict, "open_trained_run", lambda *given, **options: make_run())
    monkeypatch.setattr(predict, "find_checkpoint", lambda *given, **options: CHECKPOINT)
    monkeypatch.setattr(TrainedRun, "load", lambda *given: None)
    monkeypatch.setattr("drivetrain.cli.predict.open_run", lambda path: None)
    (tmp_path / "in").mkdir()
    Image.fromarray(_noise(20, 20)).save(tmp_path / "in" / "x.png")
    options = ["--output", str(tmp_path / "out"), "--overlay", "False", "--flips", "--tile-overlap", "0.5"]
    assert main(["predict", "RUN", str(tmp_path / "in"), *options]) == 0
    assert (tmp_path / "out" / "x-mask.png").is_file()
    assert not (tmp_path / "out" / "x-overlay.png").exists()


def test_masks_of_the_training_are_not_overwritten(
    make_run: Callable[..., TrainedRun],
    tmp_path: Path,
    inputs: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from drivetrain.cli.main import main

    run = make_run(dataset="mask-folder", data_dir=str(tmp_path))
    monkeypatch.setattr(predict, "open_trained_run", lambda *given, **options: run)
    monkeypatch.setattr(predict, "find_checkpoint", lambda *given, **options: CHECKPOINT)
    monkeypatch.setattr(TrainedRun, "load", lambda *given: None)
    monkeypatch.setattr("drivetrain.cli.predict.open_run", lambda path: None)
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "y-mask.png").write_bytes(b"by hand")
    before = sorted(tmp_path.rglob("*"))
    assert main(["predict", "RUN", *map(str, inputs), "--output", str(tmp_path / "masks")]) == 2
    assert "the --data-dir that RUN was trained on" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    assert main(["predict", "RUN", *map(str, inputs), "--output", str(tmp_path / "run" / "predictions")]) == 0


def test_masks_below_the_input_are_not_taken_for_images_when_it_is_repeated(
    make_run: Callable[..., TrainedRun], tmp_path: Path, inputs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "open_trained_run", lambda *given, **options: make_run())
    monkeypatch.setattr(predict, "find_checkpoint", lambda *given, **options: CHECKPOINT)
    monkeypatch.setattr(TrainedRun, "load", lambda *given: None)
    folder = inputs[0].parent
    with Reporter(quiet=True) as reporter:
        first, again = (
            predict.predict_run("RUN", [folder], output=folder / "out", reporter=reporter) for _ in range(2)
        )
    assert first == again
