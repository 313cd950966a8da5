"""Checks --data-dir, and suggests a folder above or below it if the user named the wrong level."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from drivetrain.core.errors import BadInputError

__all__ = ["existing_folder", "folder_above", "folder_that_works", "folders_that_work", "named", "way_out"]

# Bounds the search for the right folder: --data-dir may be a huge tree, such as a home folder.
_LEVELS_BELOW = 2
_MOST_FOLDERS_OF_A_LEVEL = 50


def existing_folder(data_dir: str | None, *, dataset: str, holding: str) -> Path:
    """Returns --data-dir as a path; refuses a missing one. `holding` says in words what it should contain."""
    if data_dir is None:
        raise BadInputError(f"--dataset {dataset} needs --data-dir DIR, a folder that holds {holding}.")
    folder = Path(data_dir)
    if not folder.is_dir():
        raise BadInputError(
            f"--data-dir {data_dir} is not an existing folder; give a folder that holds {holding}."
        )
    return folder


def folder_that_works(folder: Path, works: Callable[[Path], bool]) -> Path | None:
    """The nearest folder below `folder` for which `works` is true; None if there is none."""
    return next(folders_that_work(folder, works), None)


def folders_that_work(folder: Path, works: Callable[[Path], bool]) -> Iterator[Path]:
    """The folders below `folder` for which `works` is true, the nearest first."""
    return (path for path in _below(folder) if _does_work(path, works))


def folder_above(folder: Path, works: Callable[[Path], bool]) -> Path | None:
    """The parent of `folder`, if it can be read and `works` is true for it."""
    above = named(folder).parent
    return above if _does_work(above, works) else None


def named(folder: Path) -> Path:
    """The folder as a path that ends with its name, which `.` and `..` do not."""
    return folder.resolve() if folder.name in ("", "..") else folder


def way_out(folder: Path, works: Callable[[Path], bool], *, otherwise: str) -> str:
    """The remedy at the end of an error about --data-dir: a folder nearby that works, or `otherwise`."""
    found = folder_that_works(folder, works)
    return otherwise if found is None else f"use --data-dir {found} instead"


def _below(folder: Path) -> Iterator[Path]:
    level = [folder]
    for _ in range(_LEVELS_BELOW):
        level = [below for path in level for below in _folders_in(path)][:_MOST_FOLDERS_OF_A_LEVEL]
        yield from level


def _folders_in(folder: Path) -> list[Path]:
    try:
        below = (path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
        return sorted(islice(below, _MOST_FOLDERS_OF_A_LEVEL))
    except OSError:
        return []


def _does_work(folder: Path, works: Callable[[Path], bool]) -> bool:
    try:
        return works(folder)
    except (OSError, BadInputError):
        return False
