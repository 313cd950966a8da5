"""Downloads a volume from the first mirror that has it: as one TIFF file, or page by page."""

import shutil
from collections.abc import Callable
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.data.commands.fetch_file import MirrorError, read_url
from drivetrain.data.commands.fetch_table import RemoteFile
from drivetrain.data.files.tiff_pages import pixel_digest, read_volume, write_pages

__all__ = ["fetch_volume", "is_whole_volume"]

# Limits of a download: twice the bytes of its pixels, and at least 64 KiB for the headers of small files.
_MOST_OVERHEAD, _SMALLEST_LIMIT = 2, 2**16

OnBytes = Callable[[int], None]


def is_whole_volume(path: Path, checksum: str) -> bool:
    """Whether a file exists and has the expected pixels."""
    try:
        return path.is_file() and pixel_digest(read_volume(path)) == _digest(checksum)
    except BadInputError:
        return False


def fetch_volume(file: RemoteFile, folder: Path, *, on_bytes: OnBytes) -> Path:
    """Downloads a volume into a folder and checks its pixels; pages that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    for mirror, bring in product(file.mirrors, (_bring_whole, _bring_pages)):
        try:
            volume = bring(mirror, file, folder, on_bytes)
        except MirrorError as error:
            failures.append(f"{mirror}: {error}")
            continue
        _store(volume, folder / file.name)
        shutil.rmtree(_pages_folder(file, folder), ignore_errors=True)
        return folder / file.name
    raise RunFailedError(
        f"{file.name} could not be downloaded ({'; '.join(dict.fromkeys(failures))}); run the command again "
        "to resume, or name another mirror with --mirror URL."
    )


def _bring_whole(mirror: str, file: RemoteFile, folder: Path, on_bytes: OnBytes) -> NDArray[Any]:
    content = read_url(mirror + file.name, most_bytes=_limit(file.bytes))
    on_bytes(file.bytes)
    path = folder / f"{file.name}.part"
    path.write_bytes(content)
    try:
        return _require_pixels(read_volume(path), file)
    except BadInputError:
        raise MirrorError("the file is not a complete TIFF") from None
    finally:
        path.unlink()


def _bring_pages(mirror: str, file: RemoteFile, folder: Path, on_bytes: OnBytes) -> NDArray[Any]:
    pages = _pages_folder(file, folder)
    had_some = pages.exists()
    limit = _limit(file.bytes // max(1, len(file.page_names)))
    volume = []
    for number, name in enumerate(file.page_names):
        volume.append(_page(mirror + name, pages / f"{number}.png", most_bytes=limit))
        on_bytes(file.bytes * (number + 1) // len(file.page_names))
    try:
        return _require_pixels(np.stack(volume) if len({p.shape for p in volume}) == 1 else None, file)
    except MirrorError:
        shutil.rmtree(pages, ignore_errors=True)
        if not had_some:
            raise
    # Some pages may have come from another mirror; try again with this mirror alone.
    return _bring_pages(mirror, file, folder, on_bytes)


def _require_pixels(volume: NDArray[Any] | None, file: RemoteFile) -> NDArray[Any]:
    if volume is None or pixel_digest(volume) != _digest(file.checksum):
        raise MirrorError("the pixels are not the expected ones")
    return volume


def _page(url: str, path: Path, *, most_bytes: int) -> NDArray[np.uint8]:
    """One page's pixels, from an earlier download or a new one."""
    if not path.is_file():
        content = read_url(url, most_bytes=most_bytes)
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_bytes(content)
        partial.replace(path)
    return _decoded(path)


def _pages_folder(file: RemoteFile, folder: Path) -> Path:
    return folder / f"{file.name}.pages"


def _decoded(path: Path) -> NDArray[np.uint8]:
    try:
        with Image.open(BytesIO(path.read_bytes()), formats=("PNG",)) as image:
            return np.asarray(image.convert("L"))
    # Decoders raise any kind of exception for broken files.
    except Exception as error:
        path.unlink()
        raise MirrorError(f"page {path.stem} is not an image") from error


def _store(volume: NDArray[Any], target: Path) -> None:
    partial = target.with_name(f"{target.name}.part")
    write_pages(partial, list(volume))
    partial.replace(target)


def _limit(pixel_bytes: int) -> int:
    return max(_SMALLEST_LIMIT, _MOST_OVERHEAD * pixel_bytes)


def _digest(checksum: str) -> str:
    return checksum.partition(":")[2]
