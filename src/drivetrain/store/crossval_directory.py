"""The directory of a cross-validation: one run directory per fold, and the files with their results."""

import shutil
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.core.files import read_json, write_json
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import (
    CROSSVAL_RECORD,
    REPORT_NAME,
    RunDirectory,
    check_writable,
    default_run_path,
)
from drivetrain.store.identity import check_same_identity, identity_of

__all__ = ["CrossvalDirectory", "FreshStart", "choose_job", "make_directory", "remove_directories"]

_LOCK = ".lock"
_REPLACED = ".replaced"
# Files of a cross-validation besides its lock; nothing else in the directory is ever moved or removed.
_OWN_NAMES = (
    CROSSVAL_RECORD,
    "crossval-recipe.yaml",
    "crossval.csv",
    "curves.png",
    "README.md",
    REPORT_NAME,
    "fold-*",
)


class CrossvalDirectory:
    """The files of one cross-validation, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = path / CROSSVAL_RECORD
        self.recipe = path / "crossval-recipe.yaml"
        self.table = path / "crossval.csv"
        self.curves = path / "curves.png"
        self.readme = path / "README.md"

    def fold(self, index: int) -> RunDirectory:
        """The run that validates on a fold."""
        return RunDirectory(self.path / f"fold-{index}")

    @property
    def recipe_to_continue(self) -> Path | None:
        """The recipe of the cross-validation that the next command continues here; None if there is none."""
        return self.recipe if self.recipe.is_file() else None

    @property
    def holds_job(self) -> bool:
        return self.record.is_file()


def choose_job(
    recipe: Recipe, *, name: str, global_batch: int
) -> tuple[CrossvalDirectory, dict[str, Any], bool]:
    """Directory and identity of a request, and whether it starts afresh; refuses an unsuitable directory."""
    identity = identity_of(recipe, global_batch=global_batch)
    path = Path(recipe.output_dir) if recipe.output_dir else default_run_path(f"crossval-{name}", identity)
    check_writable(path)
    directory = CrossvalDirectory(path)
    if directory.holds_job and not recipe.overwrite:
        check_same_identity(_stored_identity(directory), identity, path=path)
        return directory, identity, False
    if not directory.holds_job and path.is_dir():
        _refuse_other_content(path)
    return directory, identity, True


class FreshStart:
    """Moves the files of an older job aside; restores them if the new request is refused."""

    def __init__(self, directory: CrossvalDirectory) -> None:
        self._directory = directory
        self._aside = directory.path / _REPLACED

    def begin(self, record: Mapping[str, Any]) -> None:
        """Moves the old files aside and writes the new record.

        The old record is copied, not moved, so that the directory is a cross-validation at every moment.
        """
        shutil.rmtree(self._aside, ignore_errors=True)
        for entry in _own_entries(self._directory.path):
            self._aside.mkdir(exist_ok=True)
            if entry == self._directory.record:
                shutil.copy2(entry, self._aside)
            else:
                entry.rename(self._aside / entry.name)
        write_json(self._directory.record, record)

    def commit(self) -> None:
        """Deletes the files of the old job."""
        shutil.rmtree(self._aside, ignore_errors=True)

    def undo(self) -> None:
        """Restores the files of the old job."""
        for entry in _own_entries(self._directory.path):
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        if self._aside.is_dir():
            for entry in self._aside.iterdir():
                entry.rename(self._directory.path / entry.name)
            self._aside.rmdir()


def make_directory(path: Path) -> list[Path]:
    """Creates a directory; returns the ones that were newly created, the deepest first."""
    missing = [entry for entry in (path, *path.parents) if not entry.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"--output-dir {path} cannot be created: {error.strerror}; try --output-dir runs/mine."
        ) from error
    return missing


def remove_directories(made: list[Path]) -> None:
    """Undoes `make_directory`, if nothing but the lock was written since."""
    for path in made:
        (path / _LOCK).unlink(missing_ok=True)
        path.rmdir()


def _own_entries(path: Path) -> list[Path]:
    return [
        entry for entry in sorted(path.iterdir()) if any(fnmatchcase(entry.name, own) for own in _OWN_NAMES)
    ]


def _refuse_other_content(path: Path) -> None:
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in (_LOCK, _REPLACED))
    if others:
        raise BadInputError(
            f"--output-dir {path} holds {others[0]} and no cross-validation; name an empty or a new "
            "directory."
        )


def _stored_identity(directory: CrossvalDirectory) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = read_json(directory.record)["identity"]
        return stored
    except (OSError, ValueError, KeyError) as error:
        raise BadInputError(
            f"--output-dir {directory.path} holds a cross-validation whose {CROSSVAL_RECORD} cannot be read "
            f"({error}); --overwrite starts afresh."
        ) from error
