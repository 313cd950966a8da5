"""Finds the image that a cell of a table means: by its path or its name, with or without the extension."""

from collections.abc import Iterable
from pathlib import PurePosixPath

from drivetrain.data.files.decode import IMAGE_SUFFIXES

__all__ = ["NamedImages", "holds_image_name"]


class NamedImages:
    """The images below a folder, by the names that a table may use for them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_name: dict[str, list[str]] = {}
        for name in names:
            for key in (PurePosixPath(name).name, _without_suffix(PurePosixPath(name).name)):
                self._by_name.setdefault(key, []).append(name)

    def matches(self, cell: str, *, folder: str | None = None) -> list[str]:
        """The images that a cell may mean: one is what is wanted.

        The longest part of the cell's path that fits an image counts, so paths may begin above or below the
        folder. Of several, those in the top folder `folder` are preferred.
        """
        parts = [part for part in cell.replace("\\", "/").split("/") if part not in ("", ".")]
        found = self._by_name.get(parts[-1], []) if parts else []
        for start in range(len(parts)):
            fitting = [name for name in found if _ends_with(name, parts[start:])]
            if fitting:
                return _preferred(fitting, "/".join(parts[start:]), folder=folder)
        return []


def holds_image_name(cells: Iterable[str]) -> bool:
    """Whether one of some cells is the name of an image file."""
    return any(cell.lower().endswith(IMAGE_SUFFIXES) for cell in cells)


def _preferred(names: list[str], cell: str, *, folder: str | None) -> list[str]:
    whole = [name for name in names if cell in (name, _without_suffix(name))]
    inside = [name for name in names if folder is not None and name.startswith(f"{folder}/")]
    return inside or whole or names


def _ends_with(name: str, parts: list[str]) -> bool:
    wanted = "/".join(parts)
    return any(f"/{form}".endswith(f"/{wanted}") for form in (name, _without_suffix(name)))


def _without_suffix(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    return stem if f".{suffix.lower()}" in IMAGE_SUFFIXES else name
