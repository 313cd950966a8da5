"""Which checkpoints a folder holds, and how one takes its place there, whatever is cut short.

A checkpoint that is written again stands aside until the new one is in its place: at every moment there is
one of them that is whole. Nothing here needs torch.
"""

import shutil
from pathlib import Path

from drivetrain.core.files import sync_directory

__all__ = ["checkpoint_paths", "partial_path", "put_in_place", "sweep_partial", "update_of"]

_PARTIAL_PREFIX = ".partial-"
_ASIDE_PREFIX = ".replaced-"


def partial_path(parent: Path, update: int) -> Path:
    """Where a checkpoint is written until it is whole."""
    return parent / f"{_PARTIAL_PREFIX}{update}"


def update_of(path: Path) -> int:
    """The update of a checkpoint's folder."""
    return int(path.name.removeprefix(_ASIDE_PREFIX))


def checkpoint_paths(parent: Path) -> list[Path]:
    """Whole checkpoints, oldest first; one that stands aside counts where nothing is in its place."""
    if not parent.is_dir():
        return []
    in_place = [path for path in parent.iterdir() if path.name.isdecimal()]
    names = {path.name for path in in_place}
    aside = [path for path in _aside(parent) if str(update_of(path)) not in names]
    return sorted([*in_place, *aside], key=update_of)


def put_in_place(partial: Path, *, parent: Path, update: int) -> Path:
    """Gives a whole checkpoint its name; what had it before is removed after that."""
    final, aside = parent / str(update), parent / f"{_ASIDE_PREFIX}{update}"
    if final.exists():
        shutil.rmtree(aside, ignore_errors=True)
        final.rename(aside)
    partial.rename(final)
    sync_directory(parent)
    shutil.rmtree(aside, ignore_errors=True)
    return final


def sweep_partial(parent: Path) -> None:
    """Removes what a kill during a write left behind; what stands aside goes back to an empty place."""
    for path in parent.glob(f"{_PARTIAL_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in _aside(parent):
        final = parent / str(update_of(path))
        if final.exists():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.rename(final)


def _aside(parent: Path) -> list[Path]:
    found = parent.glob(f"{_ASIDE_PREFIX}*")
    return [path for path in found if path.name.removeprefix(_ASIDE_PREFIX).isdecimal()]
