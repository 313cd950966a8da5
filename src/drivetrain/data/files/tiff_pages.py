"""Reads and writes multi-page TIFF files (volumes) as arrays."""

import hashlib
import logging
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from drivetrain.core.errors import BadInputError

__all__ = ["pixel_digest", "read_pages", "read_volume", "write_pages"]

_REMEDY = "copy or download the file again"


def read_volume(path: Path) -> NDArray[Any]:
    """All pages of a file as one array (pages, height, width), plus an axis for colours if it has them."""
    pages = read_pages(path)
    for number, page in enumerate(pages, start=1):
        if page.shape != pages[0].shape:
            raise BadInputError(
                f"{path} has pages of differing sizes: page 1 is {_shape(pages[0])}, page {number} is "
                f"{_shape(page)}; resize all pages to one size, or save them as separate files and use "
                "--dataset mask-folder."
            )
    return np.stack(pages)


def read_pages(path: Path) -> list[NDArray[Any]]:
    """The pixels of every page of a file, in order; pages may differ in size."""
    with _silent_library():
        try:
            with tifffile.TiffFile(path) as tiff:
                pages = [_decoded(page, path, number) for number, page in enumerate(tiff.pages)]
                is_cut_off = not pages or _announces_more(tiff)
        except (OSError, ValueError, struct.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadInputError(f"{path} cannot be read ({reason}); {_REMEDY}.") from error
    if is_cut_off:
        raise BadInputError(f"{path} is truncated: it ends after page {len(pages)}; {_REMEDY}.")
    return pages


def write_pages(path: Path, pages: Sequence[NDArray[Any]]) -> None:
    """Writes grey pages, or colour ones (height, width, 3), of any sizes into one compressed file."""
    with tifffile.TiffWriter(path) as writer:
        for page in pages:
            colours = "rgb" if page.ndim == 3 else "minisblack"
            writer.write(page, photometric=colours, compression="zlib", metadata=None, contiguous=False)


def pixel_digest(volume: NDArray[Any]) -> str:
    """The SHA-256 of a volume's pixels, whatever file they came in."""
    return hashlib.sha256(np.ascontiguousarray(volume).tobytes()).hexdigest()


def _decoded(page: Any, path: Path, number: int) -> NDArray[Any]:
    try:
        pixels: NDArray[Any] = _pixels(page, path, number)
    # Decompressors raise exceptions of many types on broken data.
    except Exception as error:
        raise BadInputError(
            f"{path} is truncated or damaged at page {number + 1} ({error}); {_REMEDY}."
        ) from error
    is_white_zero = page.photometric == tifffile.PHOTOMETRIC.MINISWHITE
    return np.iinfo(pixels.dtype).max - pixels if is_white_zero and pixels.dtype.kind == "u" else pixels


def _pixels(page: Any, path: Path, number: int) -> NDArray[Any]:
    if page.compression in tifffile.TIFF.DECOMPRESSORS:
        return np.asarray(page.asarray())
    with Image.open(path, formats=("TIFF",)) as image:
        image.seek(number)
        return np.asarray(image)


def _announces_more(tiff: tifffile.TiffFile) -> bool:
    """Whether the last page found points to a next one, which then lies beyond the end of the file."""
    layout, file = tiff.tiff, tiff.filehandle
    file.seek(tiff.pages[-1].offset)
    (entries,) = struct.unpack(layout.tagnoformat, file.read(layout.tagnosize))
    file.seek(entries * layout.tagsize, 1)
    return struct.unpack(layout.offsetformat, file.read(layout.offsetsize)) != (0,)


@contextmanager
def _silent_library() -> Iterator[None]:
    """Silences tifffile, which logs what it finds odd; problems that matter are raised as our own errors."""
    logger = logging.getLogger("tifffile")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def _shape(page: NDArray[Any]) -> str:
    height, width = page.shape[:2]
    channels = f" with {page.shape[2]} channels" if page.ndim > 2 else ""
    return f"{height}x{width}{channels}"
