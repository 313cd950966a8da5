"""Finds the image that a cell of a table means: by its path or its name, with or without the extension."""

from collections.abc import Iterable, Iterator, Sequence

from drivetrain.data.files.decode import IMAGE_SUFFIXES

__all__ = ["NamedImages", "holds_image_name"]


class NamedImages:
    """The images below a folder, by the names that a table may use for them."""

    def __init__(self, names: Iterable[str]) -> None:
        # By the ends of their paths, so that many files of one name in many folders are found at once.
        self._by_end: dict[str, list[str]] = {}
        for name in names:
            for end in _ends(_without_suffix(name).split("/")):
                self._by_end.setdefault(end, []).append(name)

    def matches(self, cell: str, *, folder: str | None = None) -> list[str]:
        """The images that a cell may mean: one is what is wanted.

        The longest part of the cell's path that fits an image counts, so paths may begin above or below the
        folder. Of several, those in the top folder `folder` are preferred.
        """
        parts = [part for part in cell.replace("\\", "/").split("/") if part not in ("", ".")]
        for end in _ends(parts):
            fitting = self._ending_with(end)
            if fitting:
                return _preferred(fitting, end, folder=folder)
        return []

    def _ending_with(self, end: str) -> list[str]:
        bare = _without_suffix(end)
        found = self._by_end.get(end, [])
        if bare == end:
            return found
        return found + [name for name in self._by_end.get(bare, []) if f"/{name}".endswith(f"/{end}")]


def _ends(parts: Sequence[str]) -> Iterator[str]:
    """The ends of a path, the longest first."""
    return ("/".join(parts[start:]) for start in range(len(parts)))


def holds_image_name(cells: Iterable[str]) -> bool:
    """Whether one of some cells is the name of an image file."""
    return any(cell.lower().endswith(IMAGE_SUFFIXES) for cell in cells)


def _preferred(names: list[str], cell: str, *, folder: str | None) -> list[str]:
    whole = [name for name in names if cell in (name, _without_suffix(name))]
    inside = [name for name in names if folder is not None and name.startswith(f"{folder}/")]
    return inside or whole or names


def _without_suffix(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    return stem if f".{suffix.lower()}" in IMAGE_SUFFIXES else name
