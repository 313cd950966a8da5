"""A newcomer's own images and masks: RGB, odd sizes, three classes, in files and in Python."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import drivetrain
from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from tests.run.segments import COLOURS, ODD_SIZES, draw_shapes, write_shapes

SMALL = ["--model-width", "4", "--model-params", "{depth: 1}", "--micro-batch-size", "2", "--device", "cpu"]
SMALL += ["--num-threads", "1", "--num-workers", "0", "--seed", "1", "--auto", "off"]
CLASSES = ["#000000", "#0000ff", "#ff0000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shapes(tmp_path_factory.mktemp("newcomer") / "shapes")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """Trained as the README shows it, with a few updates of a small network."""
    path = folder.parent / "run"
    asked = ["--dataset", "mask-folder", "--data-dir", str(folder), "--tile-size", "32"]
    assert main(["train", *asked, *SMALL, "--num-epochs", "20", "--output-dir", str(path)]) == 0
    return path


def test_the_folder_trains_in_tiles_of_its_images(run: Path) -> None:
    spec = json.loads((run / "data.json").read_text())
    assert (spec["tile"], spec["channels"], spec["num_classes"]) == (32, 3, 3)
    assert spec["class_names"] == CLASSES
    losses = np.load(run / "updates.npz")["loss"]
    assert losses[-4:].mean() < 0.9 * losses[:4].mean()


def test_sizes_that_differ_are_cut_into_tiles_by_themselves(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--dataset", "mask-folder", "--data-dir", str(folder), "--max-updates", "1"]
    assert main(["train", *asked, *SMALL, "--output-dir", str(tmp_path / "run")]) == 0
    assert "random tiles of 64x64" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "data.json").read_text())["tile"] == 64


def test_it_cross_validates(folder: Path, tmp_path: Path) -> None:
    asked = ["--dataset", "mask-folder", "--data-dir", str(folder), "--tile-size", "16", "--folds", "2"]
    job = tmp_path / "job"
    assert main(["crossval", *asked, *SMALL, "--max-updates", "1", "--output-dir", str(job)]) == 0
    validated = [
        Path(row["image"]).name
        for fold in (0, 1)
        for row in csv.DictReader((job / f"fold-{fold}" / "images.csv").open())
    ]
    assert sorted(validated) == [f"{number}.png" for number in range(len(ODD_SIZES))]
    assert {"last_dice", "last_iou"} <= set(next(csv.DictReader((job / "crossval.csv").open())))


def test_it_evaluates(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--json", "--split", "train", "--device", "cpu"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["evaluations"]
    assert row["samples"] == 5
    assert [entry["class"] for entry in row["per_class"]] == [*CLASSES[1:], CLASSES[0]]
    with (run / "images-train.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert np.mean([float(line["soft_dice"]) for line in rows]) == pytest.approx(row["dice"], abs=1e-6)
    assert json.loads((run / "evaluation-train.json").read_text())["evaluations"] == [row]
    assert main(["evaluate", str(run), "--flips", "--tile-overlap", "0.5", "--device", "cpu"]) == 0
    assert "images-validation.csv" in capsys.readouterr().out


def test_it_predicts_masks_in_the_same_colours_and_sizes(run: Path, folder: Path, tmp_path: Path) -> None:
    images = str(folder / "images")
    assert main(["predict", str(run), images, "--output", str(tmp_path / "out"), "--device", "cpu"]) == 0
    for number, size in enumerate(ODD_SIZES):
        mask = np.asarray(Image.open(tmp_path / "out" / f"{number}-mask.png"))
        assert mask.shape == (*size, 3)
        known = {tuple(colour) for colour in COLOURS.tolist()}
        assert {tuple(colour) for colour in mask.reshape(-1, 3).tolist()} <= known
        assert (tmp_path / "out" / f"{number}-overlay.png").is_file()


def test_another_folder_is_measured_where_its_classes_are_the_same(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = write_shapes(tmp_path / "same", sizes=((64, 70), (50, 60), (90, 33)))
    assert main(["evaluate", str(run), "--data-dir", str(same), "--split", "train", "--device", "cpu"]) == 0
    fewer = tmp_path / "fewer"
    for path in (same / "masks").iterdir():
        pixels = np.array(Image.open(path))
        pixels[(pixels == COLOURS[1]).all(-1)] = 0
        (fewer / "masks").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(fewer / "masks" / path.name)
    (same / "images").rename(fewer / "images")
    capsys.readouterr()
    assert main(["evaluate", str(run), "--data-dir", str(fewer), "--device", "cpu"]) == 2
    assert "class 0 of the data is background, but in RUN it is #000000; evaluate" in capsys.readouterr().err


def _arrays(samples: int = 8, size: tuple[int, int] = (24, 30)) -> tuple[NDArray[Any], NDArray[Any]]:
    pairs = [draw_shapes(*size, seed=number) for number in range(samples)]
    return np.stack([image for image, _ in pairs]), np.stack([mask for _, mask in pairs]).astype(np.int64)


PYTHON: dict[str, Any] = {
    "model": "unet_same",
    "model_width": 4,
    "model_params": {"depth": 1},
    "micro_batch_size": 2,
    "max_updates": 3,
    "device": "cpu",
    "quiet": True,
}


def test_a_folder_in_python(folder: Path, tmp_path: Path) -> None:
    asked = {"dataset": "mask-folder", "data_dir": str(folder), "tile_size": 16, "num_workers": 0}
    result = drivetrain.train(output_dir=str(tmp_path / "run"), **{**PYTHON, **asked})
    assert set(result.metrics["validation"]) >= {"dice", "iou", "hard_dice", "pixel_accuracy"}
    (row,) = drivetrain.evaluate(result.directory, device="cpu")
    assert row["dice"] == pytest.approx(result.metrics["validation"]["dice"], abs=1e-6)


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_arrays_and_tensors_in_python_give_the_same_run(tmp_path: Path, kind: str) -> None:
    images, masks = _arrays()
    pixels = images if kind == "uint8" else (images / 127.5 - 1).astype(np.float32)
    tensors = torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(masks)
    weights = []
    for number, data in enumerate([(pixels, masks), tensors]):
        result = drivetrain.train(
            data=data, validation_fraction=0.25, output_dir=str(tmp_path / str(number)), **PYTHON
        )
        weights.append(result.model.state_dict())
        assert result.metrics["validation"]["validation_samples"] == 2
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    (row,) = drivetrain.evaluate(tmp_path / "0", data=(pixels, masks), device="cpu")
    assert (row["split"], row["samples"]) == ("validation", 2)
    assert row["dice"] == pytest.approx(result.metrics["validation"]["dice"], abs=1e-6)
    (row,) = drivetrain.evaluate(tmp_path / "0", data=(pixels, masks), split="all", device="cpu")
    assert (row["samples"], {entry["class"] for entry in row["per_class"]}) == (8, {"0", "1", "2"})
    Image.fromarray(images[0]).save(tmp_path / "one.png")
    drivetrain.predict(tmp_path / "0", [tmp_path / "one.png"], output=tmp_path / "out", device="cpu")
    assert set(np.unique(np.asarray(Image.open(tmp_path / "out" / "one-mask.png")))) <= {0, 1, 2}


def test_arrays_of_another_size_are_measured_by_tiles(tmp_path: Path) -> None:
    result = drivetrain.train(data=_arrays(), output_dir=str(tmp_path / "run"), **PYTHON)
    (row,) = drivetrain.evaluate(result.directory, data=_arrays(3, (51, 40)), device="cpu")
    assert row["samples"] == 3
    assert sum(entry["pixels"] for entry in row["per_class"]) == 3 * 51 * 40
    with pytest.raises(
        BadInputError, match="1 channels, uint8, for segmentation, but RUN was trained on images of 3"
    ):
        drivetrain.evaluate(
            result.directory, data=(np.zeros((2, 24, 30, 1), np.uint8), np.zeros((2, 24, 30), int))
        )


def test_own_module_arrays_and_folds_in_python(tmp_path: Path) -> None:
    module = torch.nn.Conv2d(3, 3, 3, padding=1)
    options = {**PYTHON, "model": module, "model_params": {}, "model_width": None}
    result = drivetrain.crossval(data=_arrays(), folds=2, output_dir=str(tmp_path / "job"), **options)
    assert result.statistics is not None
    assert result.statistics.metric == "dice"
    small = {**options, "model": torch.nn.Conv2d(3, 2, 3, padding=1)}
    with pytest.raises(BadInputError, match=r"shape \(2, 2, 24, 30\) .* needs \(2, 3, 24, 30\)"):
        drivetrain.train(data=_arrays(), output_dir=str(tmp_path / "run"), **small)


def test_arrays_that_do_not_fit_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    images, masks = _arrays()
    for data, said in (
        ((images, masks[:, :20]), "The masks are 20x30, but their images are 24x30"),
        (
            (images, np.arange(8)),
            "--model unet_same is for segmentation, but the data are for classification",
        ),
    ):
        with pytest.raises(BadInputError, match=said):
            drivetrain.train(data=data, output_dir=str(tmp_path / "run"), **PYTHON)
    with pytest.raises(BadInputError, match="--model cifar_resnet8 is for classification, but the data are"):
        drivetrain.train(
            data=(images, masks), model="cifar_resnet8", output_dir=str(tmp_path / "run"), quiet=True
        )
    assert list(tmp_path.iterdir()) == []
