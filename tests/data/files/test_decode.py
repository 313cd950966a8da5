"""Image files of every kind, and files that are none."""

import struct
import warnings
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from drivetrain.data.files.decode import (
    BadSampleError,
    decode_image,
    displayed_size,
    image_of,
    naming_bad_sample,
)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decoded(content: bytes, *, channels: int = 3, size: tuple[int, int] | None = None) -> np.ndarray:
    with naming_bad_sample("x.png"):
        image = image_of(content)
        return decode_image(
            image,
            channels=channels,
            size=size or displayed_size(image),
            choose_box=lambda width, height: (0, 0, width, height),
        )
    raise AssertionError


def gradient(height: int = 4, width: int = 6) -> np.ndarray:
    values = np.arange(height * width * 3) * 3 % 256
    return values.astype(np.uint8).reshape(height, width, 3)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_keep_every_value(kind: str) -> None:
    assert np.array_equal(decoded(encoded(Image.fromarray(gradient()), kind)), gradient())


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_lossy_formats_are_close(kind: str) -> None:
    flat = np.full((8, 8, 3), (200, 100, 50), dtype=np.uint8)
    assert np.abs(decoded(encoded(Image.fromarray(flat), kind)).astype(int) - flat).max() <= 8


def test_grey_becomes_three_equal_channels_and_colour_one() -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    content = encoded(Image.fromarray(grey))
    assert np.array_equal(decoded(content), np.repeat(grey[..., None], 3, axis=2))
    assert np.array_equal(decoded(content, channels=1), grey[..., None])
    colour = Image.fromarray(gradient())
    assert np.array_equal(decoded(encoded(colour), channels=1)[..., 0], np.asarray(colour.convert("L")))


def test_transparency_shows_white() -> None:
    values = np.zeros((1, 3, 4), dtype=np.uint8)
    values[0, :, 0], values[0, :, 3] = 200, (0, 128, 255)
    seen = decoded(encoded(Image.fromarray(values, "RGBA")))
    assert seen[0, 0].tolist() == [255, 255, 255]
    assert seen[0, 2].tolist() == [200, 0, 0]
    assert 220 < seen[0, 1, 0] < 235
    grey = Image.fromarray(np.array([[[0, 0], [50, 255]]], dtype=np.uint8), "LA")
    assert decoded(encoded(grey), channels=1).reshape(-1).tolist() == [255, 50]


def test_palette_with_and_without_transparency() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    assert decoded(encoded(image)).tolist() == [[[255, 0, 0], [0, 0, 255]]]
    assert decoded(encoded(image, transparency=0)).tolist() == [[[255, 255, 255], [0, 0, 255]]]


def test_black_and_white() -> None:
    image = Image.new("1", (2, 1))
    image.putdata([0, 255])
    assert decoded(encoded(image), channels=1).reshape(-1).tolist() == [0, 255]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_by_its_whole_range(kind: str) -> None:
    values = np.array([[0, 128, 257, 32768, 65535]], dtype=np.uint16)
    shown = decoded(encoded(Image.fromarray(values), kind), channels=1)
    assert shown.reshape(-1).tolist() == [0, 0, 1, 128, 255]


def test_cmyk() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red = decoded(encoded(image, "JPEG"))[4, 4].astype(int)
    assert red[0] > 245
    assert red[1] < 10
    assert red[2] < 10


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_cameras_orientation_is_applied(orientation: int, kind: str) -> None:
    upright = Image.fromarray(gradient())
    undo = {
        1: [],
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }[orientation]
    stored = upright
    for step in undo:
        stored = stored.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(stored, kind, exif=exif)
    assert displayed_size(image_of(content)) == upright.size
    assert np.array_equal(decoded(content), gradient())


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_of_an_animation_the_first_frame_counts(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("white", "black")]
    options = {"lossless": True} if kind == "WEBP" else {}
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert getattr(image_of(content), "n_frames", 1) == 2
    assert decoded(content).min() == 255


def png_header(width: int, height: int) -> bytes:
    """A PNG that promises a size and holds nothing."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


WHOLE_JPEG = encoded(
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)), "JPEG"
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"no image at all", "not an image in a supported format"),
        (WHOLE_JPEG[: len(WHOLE_JPEG) // 2], "truncated"),
        (encoded(Image.fromarray(gradient()))[:-40], ""),
        (png_header(14000, 13000), "exceeds limit"),
        (
            encoded(Image.fromarray(np.zeros((2, 2), dtype=np.float32)), "TIFF"),
            "pixels are floating-point numbers",
        ),
        (encoded(Image.fromarray(np.zeros((2, 2), dtype=np.int32)), "TIFF"), "pixels are 32-bit integers"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image in a supported format"),
    ],
)
def test_bad_files_are_named_with_the_reason(content: bytes, said: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(
            BadSampleError, match=rf"^x\.png cannot be read: .*({said}).*--on-bad-sample skip"
        ):
            decoded(content)


def test_bombs_are_refused_where_pillows_own_limit_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(BadSampleError, match="14000x13000 pixels, more than the limit of 178956970"):
        decoded(png_header(14000, 13000))


def test_a_part_is_cut_out_and_resized() -> None:
    values = np.zeros((10, 20, 3), dtype=np.uint8)
    values[1:7, 9:15] = 200
    part = decode_image(
        Image.fromarray(values), channels=3, size=(2, 2), choose_box=lambda width, height: (10, 2, 14, 6)
    )
    assert (part.shape, part.min()) == ((2, 2, 3), 200)
