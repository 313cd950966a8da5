"""Lists the image files of class folders in an order that depends only on their names, with warnings."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.core.progress import counted
from drivetrain.data.files.decode import (
    IMAGE_SUFFIXES,
    BadSampleError,
    displayed_size,
    image_of,
    is_animation,
    naming_bad_sample,
    open_image,
    open_nonempty,
)
from drivetrain.data.files.kept_scans import KeptScan
from drivetrain.data.files.side_by_side import mapped

_MOST_NAMES_IN_A_WARNING = 5
# A folder that macOS puts into its zip files, with a hidden file for each of ours.
_OF_AN_ARCHIVE = "__MACOSX"
SKIPPED = "without an image extension are skipped"
_MAY_BE_ANIMATED = (".gif", ".webp", ".png")
# Bounds the time spent on a mere warning: reading headers is slow on network disks.
_MOST_HEADERS = 1000
# Reading headers waits for the disk, not for the CPU, so the number does not depend on the cores.
_THREADS = 8


@dataclass(frozen=True, slots=True)
class FolderStore:
    """Image files below one folder."""

    root: str
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        """The file's path."""
        return os.path.join(self.root, self.names[index])

    def short_name(self, index: int) -> str:
        """The file's path inside its folder."""
        return self.names[index]

    def stored_bytes(self, index: int) -> int:
        """The file's length."""
        return os.stat(self.name(index)).st_size

    def size(self, index: int) -> tuple[int, int]:
        """Width and height from the file's header."""
        with open(self.name(index), "rb") as file:
            return displayed_size(open_nonempty(file))

    def image(self, index: int) -> Image.Image:
        """The file's image; the file itself is closed again."""
        return image_of(self.read(index))

    def read(self, index: int) -> bytes:
        """The file's content."""
        return Path(self.name(index)).read_bytes()


@dataclass(slots=True)
class ClassFiles:
    """The files and labels of one split, sorted by class, other files, and warnings about the folder."""

    store: FolderStore
    labels: NDArray[np.int64]
    others: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def class_folders(folder: Path) -> tuple[str, ...]:
    """The names of the classes: the folders in a folder, sorted."""
    return tuple(sorted(entry.name for entry in _entries(folder) if entry.is_dir()))


def holds_images(folder: Path) -> bool:
    """Whether a folder directly contains files with an image extension."""
    return any(entry.name.lower().endswith(IMAGE_SUFFIXES) for entry in _entries(folder))


def list_classes(folder: Path, class_names: tuple[str, ...], *, by_name_only: bool = False) -> ClassFiles:
    """Every image of the classes, sorted by class and then by path; `by_name_only` opens none of them."""
    names: list[str] = []
    labels: list[int] = []
    empty: list[str] = []
    others: list[str] = []
    for label, class_name in enumerate(class_names):
        found = files_below(folder / class_name) if (folder / class_name).is_dir() else []
        found = [f"{class_name}/{name}" for name in found]
        images = sorted(name for name in found if name.lower().endswith(IMAGE_SUFFIXES))
        others += sorted(set(found) - set(images))
        empty += [] if images else [class_name]
        names += images
        labels += [label] * len(images)
    return ClassFiles(
        store=FolderStore(str(folder), tuple(names)),
        labels=np.array(labels, dtype=np.int64),
        others=others,
        warnings=[
            *_warnings(folder, empty=empty, others=others),
            *([] if by_name_only else _animation_warnings(folder, names)),
        ],
    )


def files_below(folder: Path, *, prefix: str = "", above: tuple[tuple[int, int], ...] = ()) -> list[str]:
    """Paths of all files below a folder, relative to it; a symbolic link to a parent is not followed."""
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        return []
    files: list[str] = []
    for entry in _entries(folder):
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            files += files_below(folder / entry.name, prefix=f"{name}/", above=(*above, here))
        else:
            files.append(name)
    return files


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == _OF_AN_ARCHIVE


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, without hidden entries."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not _is_hidden(entry.name)]
    except OSError as error:
        raise BadInputError(
            f"--data-dir: the folder {folder} cannot be read ({error.strerror}); check its permissions."
        ) from error


def _warnings(folder: Path, *, empty: list[str], others: list[str]) -> list[str]:
    warnings = []
    if empty:
        warnings.append(f"{folder} contains no images of class {first_names(empty)}.")
    if others:
        warnings.append(f"Files in {folder} {SKIPPED} ({len(others)} in all): {first_names(others)}.")
    return warnings


def _animation_warnings(folder: Path, names: list[str]) -> list[str]:
    likely = [str(folder / name) for name in names if name.lower().endswith(_MAY_BE_ANIMATED)]
    # Animated PNGs are rare, so GIF and WebP files come first when there are more than _MOST_HEADERS.
    likely.sort(key=lambda path: path.lower().endswith(".png"))
    animated = _animated_of(folder, likely[:_MOST_HEADERS])
    return [describe_animations(animated)] if animated else []


def _animated_of(folder: Path, paths: list[str]) -> list[str]:
    """The animations among files, from their headers or from the cached result of an earlier run."""
    if not paths:
        return []
    kept = KeptScan("animations", folder, paths, settings={})
    with suppress(LookupError, TypeError):
        return [str(path) for path in kept.recall()["animated"]]
    with ThreadPoolExecutor(_THREADS) as threads:
        looks = mapped(threads, is_animated_file, map(Path, paths))
        counts = counted(looks, total=len(paths), what="looking for animations")
        animated = [path for path, is_animated in zip(paths, counts, strict=True) if is_animated]
    kept.keep({"animated": animated})
    return animated


def is_animated_file(path: Path) -> bool:
    """Whether a file is an animation, by its header; False if it cannot be read."""
    if path.suffix.lower() not in _MAY_BE_ANIMATED:
        return False
    try:
        with naming_bad_sample(str(path)), path.open("rb") as file:
            return is_animation(open_image(file))
    except BadSampleError:
        return False


def describe_animations(names: list[str]) -> str:
    """A warning about files of which only the first frame is used."""
    holds = "is an animation" if len(names) == 1 else f"are animations ({len(names)} files)"
    return f"{first_names(names)} {holds}; only the first frame is used."


def first_names(names: list[str], *, most: int = _MOST_NAMES_IN_A_WARNING) -> str:
    """A few of many names, for a message."""
    rest = len(names) - most
    shown = ", ".join(names[:most])
    return f"{shown} and {rest} more" if rest > 0 else shown
