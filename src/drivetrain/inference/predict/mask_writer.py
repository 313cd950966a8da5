"""Masks and probabilities as image files, in the coding that the training masks had."""

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
"""Takes one page after the other; returns the name of the file that holds it."""

_WIDEST_GREY = 65535
_MOST_BYTES_OF_PLAIN_TIFF = 4_000_000_000


def mask_codes(spec: DataSpec) -> NDArray[Any]:
    """What stands for each class in a mask file: (classes,) grey values, or (classes, 3) colours.

    A class that the training masks did not have gets a code that none of theirs is. A class is its number
    where there are no training masks to go by, or they held numbers that image files rarely can.
    """
    is_writable = all(0 <= value <= _WIDEST_GREY for values in spec.mask_values for value in values)
    known = list(spec.mask_values[: spec.num_classes]) if is_writable else []
    width = len(known[0]) if known else 1
    unused = ((grey,) * width for grey in range(256) if (grey,) * width not in known)
    codes = np.array([*known, *islice(unused, spec.num_classes - len(known))])
    coded = codes.astype(np.uint8 if codes.max() <= 255 else np.uint16)
    return coded[:, 0] if width == 1 else coded


def page_name(entry: MaskInput, page: int, *, kind: str) -> str:
    """The name of a PNG that holds one page; pages are counted from 1."""
    number = "" if entry.pages == 1 else f"-page-{page:0{len(str(entry.pages))}}"
    return f"{entry.stem}-{kind}{number}.png"


@contextmanager
def open_mask_file(folder: Path, entry: MaskInput, mask_format: MaskFormat) -> Iterator[PageWriter]:
    """Writes an input's masks page by page: one TIFF of as many pages, or one PNG per page."""
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
    """A deflated TIFF, one page at a time; the file appears under its name once it is whole.

    `raw_bytes` is what all pages take at most: plain TIFF ends at 4 GiB.
    """
    beside = path.with_name(f".{path.name}.partial")
    try:
        with tifffile.TiffWriter(beside, bigtiff=raw_bytes > _MOST_BYTES_OF_PLAIN_TIFF) as tiff:

            def write(pixels: NDArray[Any]) -> str:
                colours = "rgb" if pixels.ndim == 3 else "minisblack"
                # Without tifffile's own notes, a reader takes all pages for one stack.
                tiff.write(pixels, photometric=colours, compression="zlib", metadata=None, contiguous=False)
                return path.name

            yield write
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def png_bytes(pixels: NDArray[Any]) -> bytes:
    """Grey values or colours, (height, width[, 3]), as the content of a PNG file."""
    content = BytesIO()
    Image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()
