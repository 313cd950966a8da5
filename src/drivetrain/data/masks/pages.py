"""Opens pages of image and mask files: every page of a TIFF file is an image of its own."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.TiffImagePlugin import IMAGELENGTH, IMAGEWIDTH, TiffImageFile

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.decode import (
    BadSampleError,
    decode_image,
    displayed_size,
    image_of,
    naming_bad_sample,
    open_image,
    open_nonempty,
)

__all__ = [
    "OpenVolumes",
    "Size",
    "count_pages",
    "decode_whole",
    "file_of",
    "in_channels",
    "named_page",
    "naming_mask",
    "opened",
    "page_sizes",
    "require_one_size",
    "stored_size",
]

Size = tuple[int, int]

_VOLUME_SUFFIXES = (".tif", ".tiff")
_MOST_OPEN = 8
_PAGE = " page "


def named_page(path: str, page: int | None) -> str:
    """What a message calls a page; None stands for the only one of its file."""
    return path if page is None else f"{path}{_PAGE}{page + 1}"


def file_of(name: str) -> str | None:
    """The file of a page that `named_page` named; None of an image that is its file's only one."""
    file, _, page = name.rpartition(_PAGE)
    return file if file and page.isdecimal() else None


@contextmanager
def opened(path: str, *, whole: bool) -> Iterator[Image.Image]:
    """An image file by its header; `whole` where its pixels will be asked for, too."""
    if whole and not path.lower().endswith(_VOLUME_SUFFIXES):
        yield image_of(Path(path).read_bytes())
        return
    with open(path, "rb") as file:
        yield open_nonempty(file)


def count_pages(image: Image.Image) -> int:
    """The pages of a TIFF; frames of an animation are none: as everywhere, its first one counts."""
    if image.format != "TIFF":
        return 1
    try:
        return int(getattr(image, "n_frames", 1))
    # Pillow raises errors of many types if a file ends although it announces another page.
    except Exception as error:
        raise ValueError("the file is truncated or damaged between its pages") from error


def stored_size(image: Image.Image) -> Size:
    """Height and width in the header of the page that was sought, before its pixels are turned upright."""
    if isinstance(image, TiffImageFile):
        return int(image.tag_v2[IMAGELENGTH]), int(image.tag_v2[IMAGEWIDTH])
    return image.height, image.width


def page_sizes(image: Image.Image) -> list[Size]:
    """The stored size of every page of a file, from the headers alone."""
    sizes: list[Size] = []
    for page in range(count_pages(image)):
        image.seek(page)
        sizes.append(stored_size(image))
    return sizes


def require_one_size(file: str, sizes: Sequence[Size | None]) -> None:
    """Refuses a file with a page of another size than the others; None stands for a page without a header.

    Such a page is a thumbnail or a reduced copy more often than an image of its own. Stored sizes are
    compared, so scans that a viewer turns one by one still are pages of one size.
    """
    known = [(page, size) for page, size in enumerate(sizes, start=1) if size is not None]
    for page, size in known:
        first_page, first_size = known[0]
        if size != first_size:
            raise BadInputError(
                f"{file} has pages of differing sizes: page {first_page} is {_shown(first_size)}, page "
                f"{page} is {_shown(size)} (height x width); save each page as a separate file, or remove "
                "the smaller pages."
            )


def decode_whole(image: Image.Image, *, channels: int, white_level: int | None = None) -> NDArray[np.uint8]:
    """A whole image as 8-bit pixels (height, width, channels) in its own size."""
    # Pillow turns TIFF pages itself, as it loads them, so their size as shown is sure only then.
    image.load()
    size = displayed_size(image)
    return decode_image(
        image, channels=channels, size=size, choose_box=lambda w, h: (0, 0, w, h), white_level=white_level
    )


def in_channels(pixels: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """Decoded pixels (height, width, 1 or 3) as `decode_whole` would have given them in `channels`."""
    if pixels.shape[2] == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    return np.asarray(Image.fromarray(pixels).convert("L"), dtype=np.uint8)[..., np.newaxis]


@contextmanager
def naming_mask(image: str, mask: str) -> Iterator[None]:
    """Turns whatever goes wrong with a mask into an error that names it and its image."""
    try:
        with naming_bad_sample(mask):
            yield
    except BadSampleError as error:
        raise BadSampleError(image, f"its mask {mask}: {error.reason}") from error


def _shown(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


def _only_page(image: Image.Image) -> Image.Image:
    count = count_pages(image)
    if count != 1:
        raise ValueError(f"it now has {count} pages, but had one when the folder was scanned")
    return image


class _OpenVolume:
    """A TIFF file that is closed when nobody needs it any more."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self.image = open_image(self._file)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


class OpenVolumes(threading.local):
    """Reads pages of TIFF files; each thread keeps a few open, as a page is found by walking all before it.

    Use a returned page before you ask for the next page of the same file: both are the same object.
    """

    def __init__(self) -> None:
        self._volumes: dict[str, _OpenVolume] = {}
        self._process = os.getpid()

    def __reduce__(self) -> tuple[type["OpenVolumes"], tuple[()]]:
        return OpenVolumes, ()

    def image(self, path: str, page: int | None) -> Image.Image:
        """A page, or where it is None the only image of a file of any kind."""
        if page is None:
            return _only_page(image_of(Path(path).read_bytes()))
        if self._process != os.getpid():  # A forked process shares file positions with its parent.
            self._volumes, self._process = {}, os.getpid()
        volume = self._volumes.pop(path, None) or _OpenVolume(path)
        self._volumes[path] = volume
        if len(self._volumes) > _MOST_OPEN:
            del self._volumes[next(iter(self._volumes))]
        volume.image.seek(page)
        return volume.image
