"""Which run a process belongs to: by the files it has open, or by its command line."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from drivetrain.store.directory import RunDirectory

__all__ = ["run_of_command", "run_of_files"]

_OPTION = "--output-dir"


def run_of_files(opened: Iterable[Path]) -> Path | None:
    """The run directory whose lock or rank log a process has open; every rank has one of them."""
    for path in opened:
        is_ours = path.name == ".lock" or (path.name.startswith("rank-") and path.suffix == ".log")
        if is_ours and RunDirectory(path.parent).holds_run:
            return path.parent
    return None


def run_of_command(command: Sequence[str], *, folder: str | None) -> Path | None:
    """The run that --output-dir names, relative to the folder in which the process runs."""
    for place, word in enumerate(command):
        option, equals, value = word.partition("=")
        if option.replace("_", "-") != _OPTION:
            continue
        named = value if equals else next(iter(command[place + 1 :]), "")
        path = Path(named) if folder is None else Path(folder) / named
        if named and path.is_absolute() and RunDirectory(path).holds_run:
            return path
    return None
