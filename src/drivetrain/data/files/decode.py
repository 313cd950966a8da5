"""Decodes image files of any kind to 8-bit pixels, as an image viewer would show them.

Grey, palette, CMYK and 16-bit images are converted, transparency becomes white, the EXIF orientation is
applied, and only the first frame of an animation is used.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from drivetrain.core.errors import RunFailedError

__all__ = [
    "IMAGE_SUFFIXES",
    "BadSampleError",
    "Box",
    "decode_image",
    "displayed_size",
    "has_16_bit_grey",
    "image_of",
    "is_animation",
    "naming_bad_sample",
    "open_image",
    "open_nonempty",
]

Box = tuple[float, float, float, float]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
# Some Pillow formats start external programs (EPS runs Ghostscript), so only these formats are opened.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_ANIMATED_FORMATS = ("GIF", "PNG", "WEBP")
# EXIF orientations that swap width and height.
_SIDEWAYS = (5, 6, 7, 8)
# Twice Pillow's MAX_IMAGE_PIXELS, where Pillow itself raises DecompressionBombError.
_MOST_PIXELS = 178_956_970
_BRIGHTEST_OF_16_BITS = 65535


class BadSampleError(RunFailedError):
    """A sample cannot be read: its name and the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"{name} cannot be read: {reason}; repair or remove it, or use --on-bad-sample skip to leave out "
            "unreadable samples."
        )
        self.name = name
        self.reason = reason


@contextmanager
def naming_bad_sample(name: str) -> Iterator[None]:
    """Turns any exception raised inside into a BadSampleError that names the sample."""
    try:
        yield
    except BadSampleError:
        raise
    except UnidentifiedImageError:
        raise BadSampleError(name, "it is not an image in a supported format") from None
    except FileNotFoundError as error:
        raise BadSampleError(name, _why_missing(error)) from error
    # Pillow's decoders raise exceptions of many types on broken files (SyntaxError, struct.error and others).
    except Exception as error:
        text = (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
        raise BadSampleError(name, text) from error


def _why_missing(error: FileNotFoundError) -> str:
    path = str(error.filename)
    if os.path.islink(path):
        return f"it is a symbolic link to {os.readlink(path)}, which does not exist"
    return "the file does not exist"


def open_image(file: IO[bytes]) -> Image.Image:
    """An image whose pixels are not decoded yet."""
    image = Image.open(file, formats=_FORMATS)
    if image.width * image.height > _MOST_PIXELS:
        raise ValueError(f"it has {image.width}x{image.height} pixels, more than the limit of {_MOST_PIXELS}")
    return image


def open_nonempty(file: IO[bytes]) -> Image.Image:
    """`open_image` for a file that may be empty."""
    if os.fstat(file.fileno()).st_size == 0:
        raise ValueError("the file is empty")
    return open_image(file)


def image_of(content: bytes) -> Image.Image:
    """The image in a file's content."""
    if not content:
        raise ValueError("the file is empty")
    return open_image(BytesIO(content))


def is_animation(image: Image.Image) -> bool:
    """Whether a file shows several frames one after the other, of which only the first is read."""
    return image.format in _ANIMATED_FORMATS and bool(getattr(image, "is_animated", False))


def displayed_size(image: Image.Image) -> tuple[int, int]:
    """Width and height as displayed, from the header; Pillow already swaps them for rotated TIFF files."""
    if image.format == "TIFF":
        return image.size
    return (image.height, image.width) if _orientation(image) in _SIDEWAYS else image.size


def decode_image(
    image: Image.Image,
    *,
    channels: int,
    size: tuple[int, int],
    choose_box: Callable[[int, int], Box],
    white_level: int | None = None,
) -> NDArray[np.uint8]:
    """Crops an image to `choose_box(width, height)` and resizes the crop to `size` (width, height).

    `white_level` is the value of white in 16-bit grey images; None means 65535.
    """
    upright = _in_colour_or_grey(_turned(image), white_level or _BRIGHTEST_OF_16_BITS)
    part = upright.resize(size, Image.Resampling.BILINEAR, box=choose_box(*upright.size))
    converted = part.convert("L" if channels == 1 else "RGB")
    pixels: NDArray[np.uint8] = np.asarray(converted, dtype=np.uint8)
    return pixels.reshape(size[1], size[0], channels)


def _orientation(image: Image.Image) -> int:
    # A PNG may store EXIF data after its pixels, so getexif() would decode the whole image to look for it.
    if image.format == "PNG" and not any("exif" in str(key) for key in image.info):
        return 1
    return int(image.getexif().get(ExifTags.Base.Orientation, 1))


def _turned(image: Image.Image) -> Image.Image:
    image.load()
    if _orientation(image) != 1:
        ImageOps.exif_transpose(image, in_place=True)
    return image


def has_16_bit_grey(image: Image.Image) -> bool:
    """Whether an image is 16-bit grey, so that `white_level` applies to it."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _in_colour_or_grey(image: Image.Image, white_level: int) -> Image.Image:
    """Converts to RGB or L; Pillow ignores the resampling filter in modes such as P and 1."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _eight_bits(image, white_level)
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")
    if image.mode in ("RGB", "L"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _eight_bits(image: Image.Image, white_level: int) -> Image.Image:
    """Scales 16-bit grey from 0..`white_level` to 0..255; refuses wider pixels, whose white is unknown."""
    values: NDArray[Any] = np.asarray(image)
    if not has_16_bit_grey(image):
        kind = "32-bit integers" if image.mode == "I" else "floating-point numbers"
        raise ValueError(f"its pixels are {kind}, and the file does not say which value is white")
    shown = np.minimum(values.astype(np.uint32), white_level)
    scaled = (shown * 255 + white_level // 2) // white_level
    return Image.fromarray(scaled.astype(np.uint8))
