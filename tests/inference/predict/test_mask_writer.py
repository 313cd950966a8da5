"""Masks and probabilities as image files."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from drivetrain.data.source import DataSpec
from drivetrain.inference.predict.mask_inputs import MaskInput
from drivetrain.inference.predict.mask_writer import mask_codes, open_mask_file, tiff_pages


def _spec(mask_values: tuple[tuple[int, ...], ...], num_classes: int) -> DataSpec:
    return DataSpec(
        channels=1,
        height=8,
        width=8,
        num_classes=num_classes,
        class_names=tuple("abcdefgh"[:num_classes]),
        image_dtype="uint8",
        task="segmentation",
        mask_values=mask_values,
    )


def _entry(pages: int) -> MaskInput:
    return MaskInput(path=Path("x.tif"), stem="x", pages=pages, pixels=pages * 12)


def test_codes_are_those_of_the_training_masks() -> None:
    assert mask_codes(_spec(((0,), (255,)), 2)).tolist() == [0, 255]
    colours = ((0, 0, 0), (255, 0, 0), (0, 0, 255))
    assert mask_codes(_spec(colours, 3)).tolist() == [list(colour) for colour in colours]
    assert mask_codes(_spec((), 3)).tolist() == [0, 1, 2]
    deep = mask_codes(_spec(((0,), (65535,)), 2))
    assert deep.dtype == np.uint16
    assert deep.tolist() == [0, 65535]
    assert mask_codes(_spec(((0,), (70000,)), 2)).tolist() == [0, 1]


def test_a_class_without_a_code_gets_one_of_its_own() -> None:
    assert mask_codes(_spec(((1,), (0,)), 4)).tolist() == [1, 0, 2, 3]
    coded = mask_codes(_spec(((0, 0, 0), (255, 0, 0)), 4))
    assert len({tuple(code) for code in coded.tolist()}) == 4


def test_one_image_is_one_png(tmp_path: Path) -> None:
    mask = np.array([[0, 255, 0], [255, 0, 0]], np.uint8)
    with open_mask_file(tmp_path, _entry(1), "png") as write:
        assert write(mask) == "x-mask.png"
    assert np.array_equal(np.asarray(Image.open(tmp_path / "x-mask.png")), mask)
    assert [path.name for path in tmp_path.iterdir()] == ["x-mask.png"]


def test_pages_as_png_are_numbered(tmp_path: Path) -> None:
    with open_mask_file(tmp_path, _entry(10), "png") as write:
        names = [write(np.full((3, 4, 3), page, np.uint8)) for page in range(10)]
    assert names[0] == "x-mask-page-01.png"
    assert np.asarray(Image.open(tmp_path / names[9])).max() == 9


def test_pages_as_tiff_are_one_deflated_file(tmp_path: Path) -> None:
    with open_mask_file(tmp_path, _entry(3), "tiff") as write:
        names = {write(np.full((3, 4), page, np.uint8)) for page in range(3)}
        assert not (tmp_path / "x-mask.tif").exists()
    assert names == {"x-mask.tif"}
    with tifffile.TiffFile(tmp_path / "x-mask.tif") as tiff:
        assert len(tiff.pages) == 3
        assert tiff.pages[0].compression == tifffile.COMPRESSION.ADOBE_DEFLATE
    stack = tifffile.imread(tmp_path / "x-mask.tif")
    assert stack.shape == (3, 3, 4)
    assert stack[:, 0, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("raw_bytes", [100, 5_000_000_000])
def test_floating_planes_become_one_stack(tmp_path: Path, raw_bytes: int) -> None:
    planes = np.random.default_rng(0).random((6, 5, 7), dtype=np.float32)
    with tiff_pages(tmp_path / "p.tif", raw_bytes=raw_bytes) as write:
        for plane in planes:
            write(plane)
    assert np.array_equal(tifffile.imread(tmp_path / "p.tif"), planes)
    with tifffile.TiffFile(tmp_path / "p.tif") as tiff:
        assert tiff.is_bigtiff == (raw_bytes > 2**32)


def test_a_file_that_is_not_finished_is_not_left_behind(tmp_path: Path) -> None:
    def write_half() -> None:
        with tiff_pages(tmp_path / "p.tif", raw_bytes=100) as write:
            write(np.zeros((3, 4), np.uint8))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert list(tmp_path.iterdir()) == []
