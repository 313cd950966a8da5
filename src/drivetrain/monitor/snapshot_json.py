"""A snapshot as JSON; docs/monitor.md names the keys."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from drivetrain.monitor.readings import Accelerator, Processor
from drivetrain.monitor.snapshot import DeviceRows, ProcessRow, RankRow, Snapshot

__all__ = ["SCHEMA", "snapshot_as_json"]

SCHEMA = 1


def snapshot_as_json(snapshot: Snapshot) -> dict[str, Any]:
    """Plain values; what is not known is null."""
    return {
        "schema": SCHEMA,
        "time": datetime.fromtimestamp(snapshot.time, UTC).isoformat(timespec="milliseconds"),
        "host": snapshot.host,
        "notes": list(snapshot.notes),
        "accelerators": [_device(rows) for rows in snapshot.accelerators],
        "cpus": _device(snapshot.processor),
        "elsewhere": [_rank(rank) for rank in snapshot.elsewhere],
    }


def _device(rows: DeviceRows) -> dict[str, Any]:
    values = _values(rows.device)
    return {**values, "processes": [_process(row) for row in rows.processes]}


def _values(device: Accelerator | Processor) -> dict[str, Any]:
    return {name: value for name, value in asdict(device).items() if name != "processes"}


def _process(row: ProcessRow) -> dict[str, Any]:
    return {
        "pid": row.pid,
        "user": row.user,
        "command": row.command,
        "age_seconds": None if row.age_s is None else round(row.age_s, 1),
        "cpu_percent": row.cpu_percent,
        "memory_bytes": row.memory_bytes,
        "run": None if row.run is None else str(row.run),
        "rank": None if row.rank is None else _rank(row.rank),
    }


def _rank(rank: RankRow) -> dict[str, Any]:
    """The heartbeat, its age, and what follows from it."""
    return {
        "run": str(rank.run),
        "life": rank.life,
        "heartbeat_age_seconds": round(rank.age_s, 1),
        **asdict(rank.beat),
    }
