"""Finds the runs below a folder, without ever leaving it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from drivetrain.store.directory import CROSSVAL_RECORD

__all__ = ["Found", "find_runs", "has_outward_link", "same_id"]

_DEEPEST = 4
# Large folders without runs.
_PASSED_OVER = frozenset({"checkpoints", "predictions", "tensorboard", "wandb", "export", "heartbeats"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A run or a cross-validation: `id` is its name in addresses, `parent` the id of its cross-validation."""

    id: str
    name: str
    path: Path
    is_job: bool
    parent: str | None


def find_runs(root: Path) -> list[Found]:
    """Every run in a folder and its subfolders, or the folder itself; a job comes before its folds."""
    root = root.resolve()
    return list(_found(root, root, depth=0, parent=None))


def same_id(segment: str) -> str:
    """The id that a part of an address means, however it is encoded."""
    return quote(unquote_to_bytes(segment), safe="")


def has_outward_link(run: Path, root: Path) -> bool:
    """Whether a run's directory links to a file outside of `root`, or to a folder outside of itself."""
    run, root = run.resolve(), root.resolve()
    for folder, folders, files in os.walk(run):
        links = [Path(folder, name) for name in (*folders, *files) if Path(folder, name).is_symlink()]
        # What lies in a folder outside of the run is not looked at here, so its links are not known.
        if not all(_is_inside(link, run if link.is_dir() else root) for link in links):
            return True
    return False


def _found(folder: Path, root: Path, *, depth: int, parent: str | None) -> Iterator[Found]:
    is_job = (folder / CROSSVAL_RECORD).is_file()
    if is_job or (folder / "recipe.yaml").is_file():
        found = _named(folder, root, is_job=is_job, parent=parent)
        yield found
        parent = found.id
        if not is_job:
            return
    if depth < _DEEPEST:
        for below in _folders(folder, root):
            if not is_job or _is_fold(below):
                yield from _found(below, root, depth=depth + 1, parent=parent)


def _named(folder: Path, root: Path, *, is_job: bool, parent: str | None) -> Found:
    name = root.name or "run" if folder == root else str(folder.relative_to(root))
    return Found(
        id=quote(os.fsencode(name), safe=""),
        name=os.fsencode(name).decode(errors="replace"),
        path=folder,
        is_job=is_job,
        parent=parent,
    )


def _folders(folder: Path, root: Path) -> list[Path]:
    """Subfolders by name; links only if they lead to a place beside the folder, not above it."""
    try:
        with os.scandir(folder) as entries:
            shown = [entry for entry in entries if entry.name not in _PASSED_OVER and entry.name[0] != "."]
            folders = [(Path(entry.path), entry.is_symlink()) for entry in shown if entry.is_dir()]
    except OSError:
        return []
    return [path for path, is_link in sorted(folders) if not is_link or _is_below(path, root)]


def _is_below(path: Path, root: Path) -> bool:
    """Whether a link leads to a place below the root that does not contain the link itself."""
    return _is_inside(path, root) and path.resolve() not in (root, *path.absolute().parents)


def _is_inside(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _is_fold(path: Path) -> bool:
    return path.name.startswith("fold-") and path.name.removeprefix("fold-").isdecimal()
