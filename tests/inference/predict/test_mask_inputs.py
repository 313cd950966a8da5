"""Image files of one or several pages, at their own size."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec, ImageDtype
from drivetrain.inference.predict.inputs import InputNotes
from drivetrain.inference.predict.mask_inputs import check_inputs, read_pages


def _spec(*, channels: int = 1, dtype: ImageDtype = "uint8") -> DataSpec:
    return DataSpec(
        channels=channels,
        height=8,
        width=8,
        num_classes=2,
        class_names=("back", "front"),
        image_dtype=dtype,
        task="segmentation",
    )


def _ramp(height: int, width: int) -> np.ndarray:
    return np.arange(height * width, dtype=np.uint8).reshape(height, width)


def test_every_kind_of_file_is_read_at_its_own_size(tmp_path: Path) -> None:
    grey = _ramp(5, 9)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "grey16.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "grey16.tif")
    Image.fromarray(np.dstack([grey] * 3)).save(tmp_path / "rgb.png")
    Image.fromarray(np.dstack([grey] * 3 + [np.full_like(grey, 255)])).save(tmp_path / "rgba.png")
    tifffile.imwrite(tmp_path / "rgb16.tif", np.dstack([grey.astype(np.uint16) * 257] * 3), photometric="rgb")
    for name in ("grey.png", "grey16.png", "grey16.tif", "rgb.png", "rgba.png", "rgb16.tif"):
        (page,) = read_pages(tmp_path / name, _spec())
        assert page.dtype == np.uint8
        assert np.array_equal(page, grey[:, :, None]), name
        (page,) = read_pages(tmp_path / name, _spec(channels=3))
        assert np.array_equal(page, np.dstack([grey] * 3)), name
    (page,) = read_pages(tmp_path / "grey.png", _spec(dtype="float32"))
    assert page.dtype == np.float32
    assert page.max() == np.float32(44 / 255)


def _write_pages(path: Path, pages: list[np.ndarray]) -> Path:
    with tifffile.TiffWriter(path) as tiff:
        for page in pages:
            tiff.write(page, metadata=None, contiguous=False)
    return path


def test_pages_come_in_their_order(tmp_path: Path) -> None:
    _write_pages(tmp_path / "stack.tif", [np.full((4, 6), number, np.uint8) for number in range(12)])
    pages = list(read_pages(tmp_path / "stack.tif", _spec()))
    assert [int(page[0, 0, 0]) for page in pages] == list(range(12))
    assert {page.shape for page in pages} == {(4, 6, 1)}
    (entry,) = check_inputs([tmp_path / "stack.tif"], _spec(), notes=InputNotes())
    assert (entry.pages, entry.pixels, entry.stem) == (12, 12 * 4 * 6, "stack")


def test_pages_of_differing_sizes_are_refused(tmp_path: Path) -> None:
    whole = _write_pages(tmp_path / "whole.tif", [_ramp(8, 6)] * 3)
    reduced = _write_pages(tmp_path / "reduced.tif", [_ramp(8, 6), _ramp(4, 3), _ramp(2, 1)])
    assert len(check_inputs([whole], _spec(), notes=InputNotes())) == 1
    notes = InputNotes()
    assert [entry.path for entry in check_inputs([reduced, whole], _spec(), notes=notes)] == [whole]
    assert list(notes.left_out) == [reduced]
    message = (
        r"^INPUT \S*/reduced\.tif has pages of differing sizes: page 1 is 8x6, page 2 is 4x3 "
        r"\(height x width\); save each page as a separate file, or remove the smaller pages\.$"
    )
    with pytest.raises(BadInputError, match=message):
        check_inputs([reduced], _spec(), notes=InputNotes())


def test_a_turned_page_is_read_as_it_is_shown(tmp_path: Path) -> None:
    grey = _ramp(3, 5)
    with tifffile.TiffWriter(tmp_path / "turned.tif") as tiff:
        for orientation in (6, 1, 6):
            tag = (274, "H", 1, orientation, True)
            tiff.write(grey, metadata=None, contiguous=False, extratags=[tag])
    first, second, third = read_pages(tmp_path / "turned.tif", _spec())
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(grey).save(tmp_path / "turned.png", exif=exif)
    (turned_png,) = read_pages(tmp_path / "turned.png", _spec())
    assert np.array_equal(turned_png, first)
    assert np.array_equal(first[..., 0], np.rot90(grey, -1))
    assert np.array_equal(second[..., 0], grey)
    assert np.array_equal(third, first)


def test_of_an_animation_the_first_frame_counts(tmp_path: Path) -> None:
    frames = [Image.new("L", (6, 4), value) for value in (10, 200)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert len(list(read_pages(tmp_path / "moving.gif", _spec()))) == 1


def test_inputs_of_one_name_keep_apart(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a/x.png", "b/X.png", "x.tif", "x-2.png", "y.png")]
    for path in files:
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4)).save(path)
    stems = [entry.stem for entry in check_inputs(files, _spec(), notes=InputNotes())]
    assert stems == ["x", "X-2", "x-3", "x-2-2", "y"]
    assert len({stem.lower() for stem in stems}) == len(stems)


@pytest.mark.parametrize("kept_share", [0.0, 0.3, 0.98])
@pytest.mark.parametrize("name", ["image.png", "image.jpg", "stack.tif"])
def test_broken_files_are_named(tmp_path: Path, name: str, kept_share: float) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 40, 40), dtype=np.uint8)
    path = tmp_path / name
    if name == "stack.tif":
        tifffile.imwrite(path, pixels, metadata=None, photometric="minisblack")
    else:
        Image.fromarray(pixels[0]).save(path)
    content = path.read_bytes()
    check_inputs([path], _spec(), notes=InputNotes())
    path.write_bytes(content[: int(len(content) * kept_share)])
    with pytest.raises(BadInputError, match=f"INPUT .*{name} cannot be read as an image"):
        check_inputs([path], _spec(), notes=InputNotes())
