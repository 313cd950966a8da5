"""Finds checkpoints in a folder, and puts a new one in place so that a kill at any moment loses nothing.

A checkpoint that is written again is first renamed to `.replaced-N` and removed once the new one is in
place, so a complete one exists at every moment. Nothing here imports torch.
"""

import shutil
from pathlib import Path

from drivetrain.core.files import sync_directory

__all__ = ["checkpoint_paths", "partial_path", "put_in_place", "sweep_partial", "update_of"]

_PARTIAL_PREFIX = ".partial-"
_ASIDE_PREFIX = ".replaced-"


def partial_path(parent: Path, update: int) -> Path:
    """The temporary folder of a checkpoint while it is written."""
    return parent / f"{_PARTIAL_PREFIX}{update}"


def update_of(path: Path) -> int:
    """The update number in the name of a checkpoint folder."""
    return int(path.name.removeprefix(_ASIDE_PREFIX))


def checkpoint_paths(parent: Path) -> list[Path]:
    """Complete checkpoints, oldest first; a `.replaced-N` counts if there is no N."""
    if not parent.is_dir():
        return []
    in_place = [path for path in parent.iterdir() if path.name.isdecimal()]
    names = {path.name for path in in_place}
    aside = [path for path in _aside(parent) if str(update_of(path)) not in names]
    return sorted([*in_place, *aside], key=update_of)


def put_in_place(partial: Path, *, parent: Path, update: int) -> Path:
    """Renames a complete checkpoint to its final name; then removes the older one of that name."""
    final, aside = parent / str(update), parent / f"{_ASIDE_PREFIX}{update}"
    if final.exists():
        shutil.rmtree(aside, ignore_errors=True)
        # A directory cannot be renamed onto one that has files. If the process is killed between the two
        # renames, `sweep_partial` restores the older checkpoint.
        final.rename(aside)
    partial.rename(final)
    # Before the older one is removed: at every moment one of the two is on disk.
    sync_directory(parent)
    shutil.rmtree(aside, ignore_errors=True)
    return final


def sweep_partial(parent: Path) -> None:
    """Removes leftovers of a killed write; renames a `.replaced-N` back if there is no N."""
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
