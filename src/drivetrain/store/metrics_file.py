"""metrics.jsonl: one object per event, in the order of the updates."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drivetrain.core.files import write_atomically

SHORTAGE_EVENT = "out_of_memory"
"""The event of a run that took a smaller micro-batch because memory ran out."""

OF_EVENTS = ("event", "time", "update", "elapsed_seconds", "epoch", "samples")
"""Keys of an event that are not metrics."""

# 1 MiB: longer than any single event, even that of a segmentation into many classes.
_LONGEST_END_BYTES = 2**20


class MetricsLog:
    """Appends events to metrics.jsonl; a continued run first drops those after its checkpoint.

    A `copy` begins with what the file holds, and gets the same events; no run ever reads it.
    """

    def __init__(self, path: Path, *, copy: Path | None = None) -> None:
        self.path = path
        self._paths = [path]
        if copy is not None:
            write_atomically(copy, path.read_bytes() if path.is_file() else b"")
            self._paths.append(copy)

    def append(self, event: str, **values: Any) -> dict[str, Any]:
        """Writes one event with the time; returns it."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = {"event": event, "time": now, **{name: _tidy(value) for name, value in values.items()}}
        for path in self._paths:
            with path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        return entry

    def event(self, kind: str, update: int, values: Mapping[str, Any]) -> None:
        """Writes one event of a run's log."""
        self.append(kind, update=update, **values)

    def close(self) -> None:
        """Nothing stays open between two events."""

    def rewind(self, update: int) -> None:
        """Drops the events after an update, and the summary: they will be written again."""
        kept = [entry for entry in read_metrics(self.path) if _lasts(entry, update)]
        write_atomically(self.path, "".join(json.dumps(entry) + "\n" for entry in kept).encode())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All intact events of a file; damaged lines, such as a last one cut short by a kill, are left out."""
    return [entry for entry in read_events(path) if entry is not None]


def damaged_events(path: Path) -> str | None:
    """A warning about damaged lines, except a last line that a kill cut short; None if there are none."""
    return damaged_events_of(path, read_events(path))


def damaged_events_of(path: Path, entries: Sequence[dict[str, Any] | None]) -> str | None:
    """The warning about damaged lines of a file that was read."""
    count = sum(entry is None for entry in entries[:-1])
    if not count:
        return None
    return f"{path} has damaged lines, which are missing from curves and reports ({count} left out)."


def read_events(path: Path) -> list[dict[str, Any] | None]:
    """The event of every line; None for a damaged line."""
    if not path.is_file():
        return []
    lines = path.read_text(errors="replace").splitlines()
    try:
        # Twice as fast as line by line, but of no use once a line is damaged.
        entries = json.loads(f"[{','.join(lines)}]")
    except (ValueError, RecursionError):
        entries = []
    if len(entries) != len(lines):
        entries = [_value(line) for line in lines]
    return [entry if _is_event(entry) else None for entry in entries]


def event_of(line: str) -> dict[str, Any] | None:
    """The event of a line; None for a damaged line."""
    entry = _value(line)
    return entry if _is_event(entry) else None


def _value(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_event(entry: Any) -> bool:
    return type(entry) is dict and type(entry.get("event")) is str and type(entry.get("update", 0)) is int


def _lasts(entry: dict[str, Any], update: int) -> bool:
    return entry.get("event") != "summary" and int(entry.get("update", 0)) <= update


def _tidy(value: Any) -> Any:
    """JSON has no NaN or infinity; both become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def newest_update(path: Path) -> int:
    """The update of the last event, read from the end of the file only; 0 if there is none."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LONGEST_END_BYTES))
        lines = file.read().split(b"\n")[:-1]
    try:
        return int(json.loads(lines[-1])["update"])
    except (IndexError, ValueError, KeyError):
        return 0
