"""TIFF files of several pages."""

import logging
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.tiff_pages import pixel_digest, read_pages, read_volume, write_pages

VOLUME = np.random.default_rng(0).integers(0, 256, (4, 20, 24)).astype(np.uint8)


def save_with_pillow(path: Path, compression: str) -> None:
    first, *others = [Image.fromarray(page) for page in VOLUME]
    first.save(path, save_all=True, append_images=others, compression=compression)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_pages(tmp_path / "a.tif", list(VOLUME))
    assert np.array_equal(read_volume(tmp_path / "a.tif"), VOLUME)
    with Image.open(tmp_path / "a.tif") as image:
        assert getattr(image, "n_frames", 1) == len(VOLUME)
    mixed = [VOLUME[0].astype(np.uint16) * 200, np.stack([VOLUME[1]] * 3, axis=-1), VOLUME[2, :5]]
    write_pages(tmp_path / "b.tif", mixed)
    for page, expected in zip(read_pages(tmp_path / "b.tif"), mixed, strict=True):
        assert page.dtype == expected.dtype
        assert np.array_equal(page, expected)


def test_pixels_are_told_by_their_digest_whatever_the_file(tmp_path: Path) -> None:
    write_pages(tmp_path / "a.tif", list(VOLUME))
    save_with_pillow(tmp_path / "b.tif", "raw")
    first, second = (read_volume(tmp_path / name) for name in ("a.tif", "b.tif"))
    assert pixel_digest(first) == pixel_digest(second) == pixel_digest(VOLUME) != pixel_digest(VOLUME[::-1])


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "packbits", "tiff_deflate"])
def test_compressions(tmp_path: Path, compression: str) -> None:
    save_with_pillow(tmp_path / "a.tif", compression)
    assert np.array_equal(read_volume(tmp_path / "a.tif"), VOLUME)


def test_where_zero_is_white(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", VOLUME, photometric="miniswhite")
    assert np.array_equal(read_volume(tmp_path / "a.tif"), 255 - VOLUME)


def test_pages_of_differing_sizes(tmp_path: Path) -> None:
    write_pages(tmp_path / "a.tif", [VOLUME[0], VOLUME[1], VOLUME[2, :10]])
    with pytest.raises(BadInputError, match=r"a\.tif .*page 1 is 20x24, page 3 is 10x24; resize all"):
        read_volume(tmp_path / "a.tif")


@pytest.mark.parametrize("form", ["zlib", "raw", "tiff_lzw"])
def test_every_truncated_file_is_refused_and_nothing_is_logged(
    tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.tif"
    if form == "zlib":
        write_pages(path, list(VOLUME))
    else:
        save_with_pillow(path, form)
    content = path.read_bytes()
    with caplog.at_level(logging.WARNING):
        for length in range(0, len(content) - 8, 97):
            path.write_bytes(content[:length])
            with pytest.raises(BadInputError, match="copy or download the file again"):
                read_volume(path)
    assert caplog.records == []


def test_no_file_and_no_tiff(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="No such file"):
        read_pages(tmp_path / "a.tif")
    (tmp_path / "a.tif").write_bytes(b"hello, this is no image")
    with pytest.raises(BadInputError, match="not a TIFF file"):
        read_pages(tmp_path / "a.tif")
