"""Writes masks and probabilities as image files, with the pixel values that the training masks had."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from drivetrain.core.files import write_atomically
from drivetrain.data.source import DataSpec
from drivetrain.inference.predict.mask_inputs import MaskInput
from drivetrain.inference.predict.mask_settings import MaskFormat

__all__ = ["PageWriter", "mask_codes", "open_mask_file", "page_name", "png_bytes", "tiff_pages"]

PageWriter = Callable[[NDArray[Any]], str]
"""Writes the next page; returns the name of the file that contains it."""

# PNG and TIFF files are written with at most 16 bits per value.
_WIDEST_GREY = 65535
# Offsets in a plain TIFF have 32 bits, so it ends at 4 GiB. Larger files are written as BigTIFF, which fewer
# programs can read; the limit leaves some room for headers.
_MOST_BYTES_OF_PLAIN_TIFF = 4_000_000_000


def mask_codes(spec: DataSpec) -> NDArray[Any]:
    """The pixel value of each class in a mask file: (classes,) grey values, or (classes, 3) colours.

    They are the values of the training masks; a class that these did not contain gets an unused value. If
    there are no values, or some do not fit into an image file, each class is written as its number.
    """
    is_writable = all(0 <= value <= _WIDEST_GREY for values in spec.mask_values for value in values)
    known = list(spec.mask_values[: spec.num_classes]) if is_writable else []
    width = len(known[0]) if known else 1
    unused = ((grey,) * width for grey in range(256) if (grey,) * width not in known)
    codes = np.array([*known, *islice(unused, spec.num_classes - len(known))])
    coded = codes.astype(np.uint8 if codes.max() <= 255 else np.uint16)
    return coded[:, 0] if width == 1 else coded


def page_name(entry: MaskInput, page: int, *, kind: str) -> str:
    """The file name of a PNG with one page; pages are counted from 1."""
    number = "" if entry.pages == 1 else f"-page-{page:0{len(str(entry.pages))}}"
    return f"{entry.stem}-{kind}{number}.png"


@contextmanager
def open_mask_file(folder: Path, entry: MaskInput, mask_format: MaskFormat) -> Iterator[PageWriter]:
    """A writer for the masks of an input, page by page: into one TIFF, or into one PNG per page."""
    if mask_format == "tiff":
        with tiff_pages(folder / f"{entry.stem}-mask.tif", raw_bytes=3 * entry.pixels) as write:
            yield write
        return
    written = 0

    def write_png(pixels: NDArray[Any]) -> str:
        nonlocal written
        written += 1
        name = page_name(entry, written, kind="mask")
        write_atomically(folder / name, png_bytes(pixels))
        return name

    yield write_png


@contextmanager
def tiff_pages(path: Path, *, raw_bytes: int) -> Iterator[PageWriter]:
    """A writer for a compressed TIFF, one page at a time; the file gets its name once it is complete.

    `raw_bytes` is the uncompressed size of all pages; above 4 GB the file becomes a BigTIFF.
    """
    beside = path.with_name(f".{path.name}.partial")
    try:
        with tifffile.TiffWriter(beside, bigtiff=raw_bytes > _MOST_BYTES_OF_PLAIN_TIFF) as tiff:

            def write(pixels: NDArray[Any]) -> str:
                colours = "rgb" if pixels.ndim == 3 else "minisblack"
                # metadata=None: without tifffile's own description, readers show all pages as one stack.
                tiff.write(pixels, photometric=colours, compression="zlib", metadata=None, contiguous=False)
                return path.name

            yield write
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def png_bytes(pixels: NDArray[Any]) -> bytes:
    """Encodes grey values or colours, (height, width[, 3]), as PNG."""
    content = BytesIO()
    Image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()
