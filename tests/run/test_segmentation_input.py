"""What cannot be segmented is said in one line, with what to change, before anything is written."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from drivetrain.cli.main import main
from tests.data.mask_files import classes, grey, save, save_pages, write_pairs

Break = Callable[[Path], None]


def _refusal(capsys: pytest.CaptureFixture[str], folder: Path, *options: str, command: str = "train") -> str:
    """The one line that a command answers with; checks that it did nothing else."""
    before = sorted(folder.rglob("*"))
    out = folder / "out"
    assert main([command, *options, "--output-dir", str(out), "--num-threads", "1"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.startswith(f"drivetrain {command}: error: ")
    assert sorted(folder.rglob("*")) == before
    return shown.err


def _remove(name: str) -> Break:
    return lambda folder: (folder / name).unlink()


def _cut(name: str) -> Break:
    def cut(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) * 2 // 3])

    return cut


def _empty(folder: Path) -> None:
    for path in folder.rglob("*.png"):
        path.unlink()


def _wrong_size(folder: Path) -> None:
    save(folder / "masks" / "1.png", classes(2, 12, 11) * 255)


def _third_class(folder: Path) -> None:
    save(folder / "masks" / "1.png", classes(3))
    save(folder / "masks" / "0.png", classes(2))
    save(folder / "masks" / "2.png", classes(2))


def _float_images(folder: Path) -> None:
    for number in range(3):
        (folder / "images" / f"{number}.png").unlink()
        save(folder / "images" / f"{number}.tif", grey().astype(np.float32))


def _fewer_masks(folder: Path) -> None:
    save_pages(folder / "images" / "v.tif", [grey()] * 3)
    save_pages(folder / "masks" / "v.tif", [classes(2) * np.uint8(255)] * 2)


def _reduced_page(folder: Path) -> None:
    save_pages(folder / "images" / "v.tif", [grey(), grey(6, 5)])
    save_pages(folder / "masks" / "v.tif", [classes(2) * np.uint8(255), classes(2, 6, 5) * np.uint8(255)])


@pytest.mark.parametrize(
    ("broken", "options", "words"),
    [
        (_remove("images/1.png"), [], ["no image was found for the mask", "masks/1.png", "add the image"]),
        (
            _remove("masks/1.png"),
            [],
            ["no mask was found for", "images/1.png", "name each mask like its image"],
        ),
        (_wrong_size, [], ["masks/1.png is 12x11", "images/1.png is 12x10", "give both the same size"]),
        (_third_class, ["--num-classes", "2"], ["masks/1.png contains the value 2", "use --num-classes 3"]),
        (_empty, [], ["--data-dir", "contains no images with masks", "images/1.png and"]),
        (_cut("images/1.png"), [], ["images/1.png cannot be read", "--on-bad-sample skip"]),
        (_cut("masks/1.png"), [], ["masks/1.png", "images/1.png", "--on-bad-sample skip"]),
        (_float_images, [], ["images/0.tif", "does not say which value is white", "8 or 16 bits"]),
        (
            _fewer_masks,
            [],
            ["masks/v.tif has 2 pages", "images/v.tif has 3 pages", "with the same number of pages"],
        ),
        (
            _reduced_page,
            [],
            ["images/v.tif", "page 1 is 12x10, page 2 is 6x5", "save each page as a separate file"],
        ),
    ],
)
def test_folders_that_are_not_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: Break, options: list[str], words: list[str]
) -> None:
    folder = write_pairs(tmp_path / "own")
    broken(folder)
    said = _refusal(capsys, tmp_path, "--dataset", "mask-folder", "--data-dir", str(folder), *options)
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--folds", "3", "--fold", "3"], ["--fold 3 does not exist with --folds 3", "--fold 2 works"]),
        (["--folds", "5", "--fold", "0"], ["--folds 5 is more than the 3", "--folds 3 works"]),
        (["--fold-scheme", "nvidia"], ["--fold-scheme nvidia has no effect without folds", "--folds 5"]),
        (["--model", "unet", "--image-size", "3"], ["--image-size 3 is too small", "--image-size 4"]),
        (["--model", "unet", "--image-size", "50"], ["50 pixels do not fit unet", "36 and 52"]),
        (
            ["--model", "unet", "--tile-size", "50"],
            ["--tile-size 50 does not fit", "--tile-size 52 works"],
        ),
        (["--model", "unet"], ["cannot process whole images of 12x10", "--tile-size 4", "--image-size 4"]),
        (["--tile-size", "8", "--image-size", "8"], ["--tile-size 8", "--image-size 8", "leave one out"]),
        (["--dice-weight", "0", "--cross-entropy-weight", "0"], ["leave no loss", "--dice-weight 1 works"]),
        (["--model", "cifar_resnet8"], ["--model cifar_resnet8 is for classification", "--model unet_same"]),
        (["--mixup", "0.2"], ["--mixup 0.2 is for classification", "leave it out"]),
        (["--elastic", "50"], ["--elastic 50 would fold", "--elastic"]),
        (
            ["--tile-size", "8", "--data-placement", "resident"],
            ["new tiles in every epoch", "--data-placement stream"],
        ),
        (["--class-weights", "1", "2", "3"], ["--class-weights has 3 numbers", "2 classes", "balanced"]),
        (["--num-classes", "1"], ["--num-classes 1 is out of range", "--num-classes 2 works"]),
        (["--model-params", "{depth: 9}"], ["depth: 9", "from 1 to 8"]),
        (["--stop-at", "accuracy=0.9"], ["--stop-at accuracy=0.9", "dice"]),
        (["--precision", "16.32", "--half-type", "float8"], ["--half-type", "float8"]),
    ],
)
def test_options_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: list[str]
) -> None:
    folder = write_pairs(tmp_path / "own")
    own = ["--dataset", "mask-folder", "--data-dir", str(folder), "--micro-batch-size", "1", "--auto", "off"]
    said = _refusal(capsys, tmp_path, *own, *options)
    for word in words:
        assert word in said


def test_options_of_segmentation_with_a_classifier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _refusal(capsys, tmp_path, "--dataset", "digits", "--tile-size", "8")
    assert "--tile-size 8 is for segmentation, and this is classification; leave it out." in said
    said = _refusal(capsys, tmp_path, "--dataset", "digits", "--model", "unet_same")
    assert "--model cifar_resnet8 or --dataset synthetic-em works" in said


def _volume(path: Path, pages: list[NDArray[np.uint8]]) -> None:
    with tifffile.TiffWriter(path) as tiff:
        for page in pages:
            tiff.write(page, metadata=None, contiguous=False)


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (
            [(32, 32), (32, 30)],
            [(32, 32)] * 2,
            ["train-volume.tif", "page 2 is 32x30", "resize all pages to one"],
        ),
        (
            [(32, 32)] * 2,
            [(32, 30)] * 2,
            ["pages of 32x32", "train-labels.tif of 32x30", "give both the same size"],
        ),
        ([(32, 32)] * 2, [(32, 32)] * 3, ["has 2 pages", "train-labels.tif has 3"]),
    ],
)
def test_volumes_whose_pages_differ(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    images: list[tuple[int, int]],
    labels: list[tuple[int, int]],
    words: list[str],
) -> None:
    (tmp_path / "isbi").mkdir()
    _volume(tmp_path / "isbi" / "train-volume.tif", [grey(*size) for size in images])
    _volume(tmp_path / "isbi" / "train-labels.tif", [classes(2, *size) * 255 for size in labels])
    said = _refusal(capsys, tmp_path, "--dataset", "isbi2012", "--data-dir", str(tmp_path / "isbi"))
    for word in words:
        assert word in said


def test_a_truncated_volume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "isbi").mkdir()
    _volume(tmp_path / "isbi" / "train-volume.tif", [grey(32, 32)] * 3)
    _volume(tmp_path / "isbi" / "train-labels.tif", [classes(2, 32, 32) * 255] * 3)
    _cut("train-volume.tif")(tmp_path / "isbi")
    said = _refusal(capsys, tmp_path, "--dataset", "isbi2012", "--data-dir", str(tmp_path / "isbi"))
    assert "train-volume.tif is truncated or damaged" in said


def test_a_cross_validation_refuses_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_pairs(tmp_path / "own")
    _wrong_size(folder)
    options = ["--dataset", "mask-folder", "--data-dir", str(folder), "--folds", "3"]
    said = _refusal(capsys, tmp_path, *options, command="crossval")
    assert "give both the same size" in said


def test_a_bad_file_may_be_left_out(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "own", count=6)
    _cut("images/1.png")(folder)
    options = ["--dataset", "mask-folder", "--data-dir", str(folder), "--on-bad-sample", "skip"]
    options += ["--model-width", "2", "--model-params", "{depth: 1}", "--max-updates", "2", "--device", "cpu"]
    out = tmp_path / "out"
    assert main(["train", *options, "--micro-batch-size", "2", "--output-dir", str(out)]) == 0
    assert "images/1.png" in (out / "bad_samples.json").read_text()
