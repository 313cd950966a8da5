"""The newest heartbeat of a run: what its ranks last wrote about themselves."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.core.files import read_json
from drivetrain.report.live.progress import finite

__all__ = ["Beat", "newest_beat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a rank wrote, and when by the clock of the disk."""

    written_s: float
    content: Mapping[str, Any]

    def number(self, name: str) -> float | None:
        """A finite number of the heartbeat, or None."""
        return finite(self.content.get(name))


def newest_beat(run: Path) -> Beat | None:
    """The heartbeat that was written last; None if the run writes none."""
    try:
        with os.scandir(run / "heartbeats") as entries:
            files = [
                (entry.stat(follow_symlinks=False).st_mtime, entry.path)
                for entry in entries
                if entry.name.startswith("rank-") and entry.is_file(follow_symlinks=False)
            ]
        written_s, path = max(files)
        return Beat(written_s=written_s, content=read_json(Path(path)))
    except (OSError, ValueError, RecursionError):
        return None
