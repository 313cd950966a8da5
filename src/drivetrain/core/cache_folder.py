"""A small cache in the user's cache folder for facts about this machine that are slow to find out."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["cache_folder", "keep_answer", "read_answer"]


def cache_folder() -> Path | None:
    """The folder for cached answers; None for a user without a home directory."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if named and Path(named).is_absolute():
        return Path(named) / "drivetrain"
    try:
        return Path.home() / ".cache" / "drivetrain"
    except RuntimeError:
        return None


def read_answer(path: Path | None, name: str, *, marks: Mapping[str, Any]) -> dict[str, Any]:
    """The cached answer under `name`, if it was stored with the same `marks`; otherwise empty."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads(path.read_text()) if path else {}
        if record["marks"] == dict(marks):
            return dict(record[name])
    return {}


def keep_answer(path: Path | None, name: str, *, marks: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """Stores an answer atomically; if that fails, the next process finds it out again."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({"marks": dict(marks), name: dict(answer)}, indent=2) + "\n")
        written.replace(path)
