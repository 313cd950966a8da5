"""Which runs are looked at: named ones, those in the folder of runs, and those of processes of this host."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from drivetrain.monitor.readings import HostReading
from drivetrain.store.directory import RunDirectory
from drivetrain.store.heartbeat import Heartbeat, read_heartbeats

__all__ = ["beats_of", "runs_in"]


def runs_in(parent: Path) -> list[Path]:
    """The runs in a folder, the folds of cross-validations among them."""
    try:
        return sorted(
            path.parent
            for pattern in ("*/recipe.yaml", "*/fold-*/recipe.yaml")
            for path in parent.glob(pattern)
        )
    except OSError:
        return []


def beats_of(runs: Iterable[Path], reading: HostReading) -> dict[Path, Sequence[Heartbeat]]:
    """The heartbeats of these runs, and of those that processes of this host belong to, each run once."""
    own = [process.run for process in reading.processes.values() if process.run is not None]
    found: dict[Path, Path] = {}
    for run in (*runs, *sorted(own)):
        if RunDirectory(run).heartbeats.is_dir():
            found.setdefault(run.resolve(), run)
    return {run: read_heartbeats(run) for run in found.values()}
