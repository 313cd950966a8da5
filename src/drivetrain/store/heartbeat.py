"""heartbeats/rank-N.json in a run directory: what each rank is doing, for people who look on."""

import json
import math
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from drivetrain.core.files import read_json, write_atomically
from drivetrain.core.wording import words

__all__ = [
    "FOLDER",
    "Heartbeat",
    "RankState",
    "clear_heartbeats",
    "heartbeat_of",
    "read_heartbeats",
    "write_heartbeat",
]

FOLDER = "heartbeats"
RankState = Literal["starting", "compiling", "training", "validating", "finishing", "finished", "stopped"]


_TEXTS = words("host stage state metric_name device device_id")
_MAY_BE_NULL = words(
    "stage images_per_second loss metric_name metric seconds_left device_index device_id",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a rank is doing; `time` and `process_began` are seconds since 1970, None is not known.

    `stage` names the pipeline stages of the rank, such as "1" or "0, 2". `loss`, `metric` and
    `images_per_second` are those of the last log, on a CPU also of the last progress line.
    """

    time: float
    host: str
    pid: int
    process_began: float
    rank: int
    replica: int
    stage: str | None
    state: RankState
    update: int
    total_updates: int
    images_per_second: float | None = None
    loss: float | None = None
    metric_name: str | None = None
    metric: float | None = None
    seconds_left: float | None = None
    device: str = "cpu"
    device_index: int | None = None
    device_id: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the rank has ended its work; no further heartbeat follows."""
        return self.state in ("finished", "stopped")


def write_heartbeat(run: Path, beat: Heartbeat) -> None:
    """Replaces the heartbeat of a rank, without waiting for the disk."""
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    content = {name: _tidy(value) for name, value in asdict(beat).items()}
    path = folder / f"rank-{beat.rank}.json"
    write_atomically(path, json.dumps(content, indent=2).encode() + b"\n", synced=False)


def read_heartbeats(run: Path) -> list[Heartbeat]:
    """The heartbeats in a run directory by rank; files that cannot be read are left out."""
    beats = []
    with suppress(OSError):
        for path in (run / FOLDER).glob("rank-*.json"):
            with suppress(OSError, ValueError, TypeError):
                beats.append(heartbeat_of(read_json(path)))
    return sorted(beats, key=lambda beat: beat.rank)


def clear_heartbeats(run: Path) -> None:
    """Removes what earlier ranks of a run left; a disk error is no reason to stop."""
    shutil.rmtree(run / FOLDER, ignore_errors=True)


def heartbeat_of(content: dict[str, Any]) -> Heartbeat:
    """A heartbeat from its file; keys of newer versions are ignored, other content raises an error."""
    known = {field.name: content[field.name] for field in fields(Heartbeat) if field.name in content}
    beat = Heartbeat(**known)
    if beat.state not in get_args(RankState) or not all(_fits(name, value) for name, value in known.items()):
        raise ValueError("not a heartbeat")
    return beat


def _fits(name: str, value: Any) -> bool:
    """Whether a value has the type of its key."""
    if value is None:
        return name in _MAY_BE_NULL
    return isinstance(value, str) if name in _TEXTS else isinstance(value, int | float)


def _tidy(value: Any) -> Any:
    """JSON has no NaN or infinity; both become null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
