"""The one size that image files of many sizes are brought to."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.core.progress import counted
from drivetrain.data.files.crop import Fit
from drivetrain.data.files.decode import BadSampleError, naming_bad_sample
from drivetrain.data.files.folder_files import FolderStore
from drivetrain.data.files.image_source import ImageStore
from drivetrain.data.files.kept_scans import KeptScan
from drivetrain.data.files.side_by_side import mapped

DEFAULT_SIZE = 224
# ImageNet is measured on the middle 224 of 256.
_IMAGENET_SHORT_SIDE = 256 / 224
_HEADERS_AT_A_TIME = 512
_THREADS = 8


def choose_fit(
    store: ImageStore, *, image_size: int | None, is_imagenet: bool, refuse_bad: bool
) -> tuple[Fit, list[str]]:
    """How images become samples, and what should be said about a size nobody asked for."""
    if is_imagenet:
        size = image_size or DEFAULT_SIZE
        return Fit(height=size, width=size, short_side=round(size * _IMAGENET_SHORT_SIDE)), []
    if image_size is not None:
        return _square(image_size), []
    common = common_size(store, refuse_bad=refuse_bad)
    if common is None:
        return _square(DEFAULT_SIZE), [
            f"The images have many sizes and are brought to {DEFAULT_SIZE}x{DEFAULT_SIZE}; --image-size N "
            "chooses another size."
        ]
    width, height = common
    return _square(width) if width == height else Fit(height=height, width=width, short_side=None), []


def common_size(store: ImageStore, *, refuse_bad: bool) -> tuple[int, int] | None:
    """The width and height that all readable images have; None if they differ or none can be read.

    Of many files that are refused where one cannot be read, the answer is remembered between starts.
    """
    if not isinstance(store, FolderStore) or not refuse_bad:
        return _look_for_size(store, refuse_bad=refuse_bad)
    # To find out whether all files are the same as before takes longer than a look at the first few.
    found = _look_for_size(store, refuse_bad=refuse_bad, most=_HEADERS_AT_A_TIME)
    if found is None or len(store) <= _HEADERS_AT_A_TIME:
        return found
    names = [*map(store.name, range(len(store)))]
    kept = KeptScan("image-folder", Path(store.root), names, settings={})
    with suppress(LookupError, TypeError, ValueError):
        size = kept.recall()["size"]
        return None if size is None else (int(size[0]), int(size[1]))
    found = _look_for_size(store, refuse_bad=refuse_bad)
    kept.keep({"size": found})
    return found


def _look_for_size(store: ImageStore, *, refuse_bad: bool, most: int | None = None) -> tuple[int, int] | None:
    found: tuple[int, int] | None = None
    indices = range(len(store))[:most]
    sizes = _sizes(store, indices, refuse_bad=refuse_bad)
    looks = counted(sizes, total=len(indices), what="scanning sizes of images")
    with closing(looks):
        for size in looks:
            if found is not None and size is not None and size != found:
                return None
            found = size or found
    return found


def _sizes(store: ImageStore, indices: range, *, refuse_bad: bool) -> Iterator[tuple[int, int] | None]:
    """Sizes in order, a few headers ahead: the first difference ends the search."""

    def size_of(index: int) -> tuple[int, int] | None:
        try:
            with naming_bad_sample(store.name(index)):
                return store.size(index)
        except BadSampleError as error:
            if refuse_bad:
                raise BadInputError(str(error)) from error
            return None

    with ThreadPoolExecutor(_THREADS) as threads:
        yield from mapped(threads, size_of, indices, most_ahead=_HEADERS_AT_A_TIME)


def _square(size: int) -> Fit:
    return Fit(height=size, width=size, short_side=size)
