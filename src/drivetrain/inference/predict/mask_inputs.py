"""Reads the image files that masks are predicted for, at their own size, with one or several pages."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.core.progress import counted
from drivetrain.data.files.decode import BadSampleError, image_of, naming_bad_sample
from drivetrain.data.files.folder_files import is_animated_file
from drivetrain.data.files.side_by_side import mapped
from drivetrain.data.masks.pages import decode_whole, page_sizes, require_one_size
from drivetrain.data.source import DataSpec
from drivetrain.inference.predict.inputs import InputNotes, UnreadableInputError

__all__ = ["MaskInput", "check_inputs", "distinct_stems", "read_pages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskInput:
    """A file that was read completely; its outputs are named after `stem`, which is unique."""

    path: Path
    stem: str
    pages: int
    pixels: int
    """Of all pages together."""


def check_inputs(files: Sequence[Path], spec: DataSpec, *, notes: InputNotes) -> list[MaskInput]:
    """Decodes every page of every file once; adds unreadable files to `notes`, and raises if all are."""

    def sizes_of(path: Path) -> list[int] | BadInputError:
        try:
            return [page[..., 0].size for page in read_pages(path, spec)]
        except BadInputError as error:
            return error

    stems = distinct_stems([path.stem for path in files])
    entries: list[MaskInput] = []
    # Pillow warns about files and then raises for them; the user should see one sentence, not both.
    with catch_warnings(action="ignore"), ThreadPoolExecutor() as threads:
        checks = mapped(threads, sizes_of, files)
        checked = counted(checks, total=len(files), what="reading the images")
        for path, stem, found in zip(files, stems, checked, strict=True):
            if isinstance(found, BadInputError):
                notes.left_out[path] = found
            else:
                entries.append(MaskInput(path=path, stem=stem, pages=len(found), pixels=sum(found)))
    notes.require_some(files)
    notes.animated += [entry.path for entry in entries if is_animated_file(entry.path)]
    return entries


def read_pages(path: Path, spec: DataSpec) -> Iterator[NDArray[Any]]:
    """Each page of a TIFF, or the one image of another file: (height, width, channels) in the run's range.

    Raises BadInputError if the pages have different sizes.
    """
    with _naming_input(path):
        image = image_of(path.read_bytes())
        sizes = page_sizes(image)
    require_one_size(f"INPUT {path}", sizes)
    with _naming_input(path):
        for page in range(len(sizes)):
            image.seek(page)
            pixels = decode_whole(image, channels=spec.channels, white_level=spec.white_level)
            yield pixels if spec.image_dtype == "uint8" else (pixels / np.float32(255)).astype(np.float32)


@contextmanager
def _naming_input(path: Path) -> Iterator[None]:
    try:
        with naming_bad_sample(str(path)):
            yield
    except BadSampleError as error:
        raise UnreadableInputError(path, error.reason) from error


def distinct_stems(stems: Sequence[str]) -> list[str]:
    """Unique file names without suffix: repeated names get a number, such as "cell-2".

    Case is ignored, because some file systems do not distinguish it.
    """
    taken: set[str] = set()
    distinct: list[str] = []
    for stem in stems:
        own, number = stem, 1
        while own.lower() in taken:
            number += 1
            own = f"{stem}-{number}"
        taken.add(own.lower())
        distinct.append(own)
    return distinct
