"""How long updates take compiled and uncompiled, remembered in the user's cache folder."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from drivetrain.core.cache_folder import cache_folder, keep_answer, read_answer

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
    answer = read_answer(_path(digest), "gain", marks=marks)
    try:
        return Gain(**answer) if answer else None
    except TypeError:
        return None


def remember_gain(marks: Marks, gain: Gain) -> None:
    """For this process and, where a user has a home, for the next ones."""
    digest = _digest(marks)
    _known[digest] = gain
    keep_answer(_path(digest), "gain", marks=marks, answer=asdict(gain))


def _digest(marks: Marks) -> str:
    return hashlib.sha256(json.dumps(dict(marks), sort_keys=True).encode()).hexdigest()[:16]


def _path(digest: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / "compile-gains" / f"{digest}.json"
