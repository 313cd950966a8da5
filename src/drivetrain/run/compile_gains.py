"""How long updates take compiled and uncompiled, remembered in the user's cache folder."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from drivetrain.cluster.half_probe import cache_folder

__all__ = ["Gain", "recall_gain", "remember_gain"]

Marks = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Seconds of one update as it is written and, where that was measured, compiled, and of compiling."""

    plain_s: float
    compiled_s: float | None = None
    compiling_s: float = 0.0


# For users without a home, and for the folds that one process trains.
_known: dict[str, Gain] = {}


def recall_gain(marks: Marks) -> Gain | None:
    """What was measured for the same work on the same device; None where nothing was."""
    digest = _digest(marks)
    if digest in _known:
        return _known[digest]
    path = _path(digest)
    try:
        record = json.loads(path.read_text()) if path else {}
        return Gain(**record["gain"]) if record["marks"] == dict(marks) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember_gain(marks: Marks, gain: Gain) -> None:
    """In place by one rename; where it cannot be written the next process measures again."""
    digest = _digest(marks)
    _known[digest] = gain
    path = _path(digest)
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({"marks": dict(marks), "gain": asdict(gain)}, indent=2) + "\n")
        written.replace(path)


def _digest(marks: Marks) -> str:
    return hashlib.sha256(json.dumps(dict(marks), sort_keys=True).encode()).hexdigest()[:16]


def _path(digest: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / "compile-gains" / f"{digest}.json"
