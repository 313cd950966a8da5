"""What was found out once about this machine, kept in the user's cache folder."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["cache_folder", "keep_answer", "read_answer"]


def cache_folder() -> Path | None:
    """Where answers are kept; None for a user without a home."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if named and Path(named).is_absolute():
        return Path(named) / "drivetrain"
    try:
        return Path.home() / ".cache" / "drivetrain"
    except RuntimeError:
        return None


def read_answer(path: Path | None, name: str, *, marks: Mapping[str, Any]) -> dict[str, Any]:
    """What a file holds under a name for the same question, which `marks` are; empty where it holds none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads(path.read_text()) if path else {}
        if record["marks"] == dict(marks):
            return dict(record[name])
    return {}


def keep_answer(path: Path | None, name: str, *, marks: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """In place by one rename; where it cannot be written the next process asks again."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({"marks": dict(marks), name: dict(answer)}, indent=2) + "\n")
        written.replace(path)
