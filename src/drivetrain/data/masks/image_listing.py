"""The image files below a folder, by their names without suffix: the names pair images with masks."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.decode import IMAGE_SUFFIXES
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.masks.mask_names import is_mask_name

__all__ = ["ImageFiles", "list_images"]

_CLASS_FILES = ("classes.txt", "classes.json")


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Image files below a folder, by path without suffix."""

    root: Path
    by_stem: dict[str, str]

    def of_kind(self, *, masks: bool) -> "ImageFiles":
        """Those that are masks by their names, or those that are not."""
        return ImageFiles(
            self.root, {stem: name for stem, name in self.by_stem.items() if is_mask_name(stem) is masks}
        )

    def path(self, stem: str) -> str:
        """Where a file is."""
        return str(self.root / self.by_stem[stem])

    def paths(self) -> list[str]:
        """Where all of them are."""
        return [self.path(stem) for stem in self.by_stem]


def list_images(root: Path, warnings: list[str]) -> ImageFiles:
    """The image files of a folder and those in it; `warnings` hears of files that are none."""
    by_stem: dict[str, str] = {}
    others: list[str] = []
    for name in _files_below(root):
        if not name.lower().endswith(IMAGE_SUFFIXES):
            others += [] if name in _CLASS_FILES else [name]
            continue
        stem = PurePosixPath(name).with_suffix("").as_posix()
        if stem in by_stem:
            raise BadInputError(
                f"--data-dir: {root} holds both {by_stem[stem]} and {name}; rename or remove one, their "
                "names tell which mask belongs to which image."
            )
        by_stem[stem] = name
    if others:
        warnings.append(
            f"{root} holds {len(others)} files that are no images by their names, and are left out: "
            f"{first_names(others)}."
        )
    return ImageFiles(root, by_stem)


def _files_below(root: Path) -> list[str]:
    """Paths of all files that are not hidden, sorted."""
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        prefix = Path(folder).relative_to(root)
        found += [(prefix / name).as_posix() for name in names if not name.startswith(".")]
    return sorted(found)
