"""A snapshot as lines of text for a given width, each with what it is about."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from textwrap import wrap
from typing import Literal

from drivetrain.monitor import cells
from drivetrain.monitor.layout import LiveColumn, laid_out
from drivetrain.monitor.readings import Accelerator, Processor
from drivetrain.monitor.snapshot import ProcessRow, RankRow, Snapshot

__all__ = ["Line", "snapshot_lines"]

Kind = Literal["heading", "titles", "device", "ours", "other", "stale", "gone", "note"]
_NO_PROCESS = "no process"
_LIVES: dict[str, Kind] = {"alive": "ours", "over": "other", "stale": "stale", "gone": "gone"}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text and what it is about."""

    text: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """A row of the table of processes: a device, and a process on it or none."""

    device: str
    row: ProcessRow | None


def snapshot_lines(snapshot: Snapshot, *, width: int) -> list[Line]:
    """All tables of a snapshot, no line longer than `width`."""
    when = datetime.fromtimestamp(snapshot.time).strftime("%Y-%m-%d %H:%M:%S")
    lines = [Line(f"drivetrain monitor  {snapshot.host}  {when}"[:width], "heading"), Line("", "note")]
    lines += _accelerators([rows.device for rows in snapshot.accelerators], width=width)
    lines += [Line(note, "note") for text in snapshot.notes for note in wrap(text, width)]
    assert isinstance(snapshot.processor.device, Processor)
    lines += [Line("", "note"), *_processor(snapshot.processor.device, width=width)]
    lines += [Line("", "note"), *_processes(snapshot, width=width)]
    if snapshot.elsewhere:
        lines += [Line("", "note"), *_elsewhere(snapshot, width=width)]
    return lines


def _accelerators(devices: Sequence[Accelerator | Processor], *, width: int) -> list[Line]:
    found = [device for device in devices if isinstance(device, Accelerator)]
    if not found:
        return [Line("no accelerator", "note")]

    def column(
        title: str,
        of: Callable[[Accelerator], str | None],
        *,
        rank: int | None = None,
        least: int | None = None,
    ) -> LiveColumn:
        return LiveColumn(title=title, cells=[of(device) or "" for device in found], rank=rank, least=least)

    return _titled(
        [
            column("on", lambda device: f"gpu {device.index}"),
            column("kind", lambda device: device.kind, rank=1, least=12),
            column("use", lambda device: cells.percent(device.utilisation_percent)),
            column(
                "memory", lambda device: cells.used_of(device.memory_used_bytes, device.memory_total_bytes)
            ),
            column(
                "clock", lambda device: cells.megahertz(device.clock_mhz, device.largest_clock_mhz), rank=5
            ),
            column("temp", lambda device: cells.celsius(device.chip_celsius), rank=2),
            column("mem temp", lambda device: cells.celsius(device.memory_celsius), rank=4),
            column("power", lambda device: cells.watts(device.power_watts, device.power_limit_watts), rank=3),
            column("driver", lambda device: device.driver, rank=6),
            column("firmware", lambda device: device.firmware, rank=7),
            column("serial", lambda device: device.serial, rank=8),
            column("id", lambda device: device.id, rank=9),
        ],
        kinds=["device"] * len(found),
        width=width,
    )


def _processor(device: Processor, *, width: int) -> list[Line]:
    def column(
        title: str, cell: str | None, *, rank: int | None = None, least: int | None = None
    ) -> LiveColumn:
        return LiveColumn(title=title, cells=[cell or ""], rank=rank, least=least)

    cores = "" if device.cores is None else str(device.cores)
    if device.threads is not None and device.threads != device.cores:
        cores = f"{cores} ({device.threads} threads)" if cores else f"{device.threads} threads"
    return _titled(
        [
            column("on", "cpu"),
            column("kind", device.kind, rank=4, least=12),
            column("cores", cores, rank=3),
            column("use", cells.percent(device.utilisation_percent)),
            column("load", "" if device.load is None else f"{device.load:.1f}", rank=2),
            column("memory", cells.used_of(device.memory_used_bytes, device.memory_total_bytes), rank=1),
            column("clock", cells.megahertz(device.clock_mhz), rank=5),
            column("temp", cells.celsius(device.chip_celsius), rank=6),
        ],
        kinds=["device"],
        width=width,
    )


def _processes(snapshot: Snapshot, *, width: int) -> list[Line]:
    """The ranks of runs, then all other processes; a device without any has a row that says so."""
    rows = [
        _OnDevice(device, row) for device, processes in _by_device(snapshot) for row in (processes or (None,))
    ]
    ranks = [entry for entry in rows if entry.row is not None and entry.row.rank is not None]
    others = [entry for entry in rows if entry not in ranks]
    if not ranks or not others:
        return _table_of(rows, width=width)
    return [*_table_of(ranks, width=width), Line("", "note"), *_table_of(others, width=width)]


def _table_of(rows: Sequence[_OnDevice], *, width: int) -> list[Line]:
    ranks = [None if entry.row is None else entry.row.rank for entry in rows]

    def column(
        title: str,
        of: Callable[[ProcessRow], str | None],
        *,
        rank: int | None = None,
        least: int | None = None,
        side: Literal["left", "right"] = "left",
    ) -> LiveColumn:
        texts = ["" if entry.row is None else of(entry.row) or "" for entry in rows]
        return LiveColumn(title=title, cells=texts, rank=rank, least=least, side=side)

    pids = [_NO_PROCESS if entry.row is None else str(entry.row.pid) for entry in rows]
    return _titled(
        [
            LiveColumn(title="on", cells=[entry.device for entry in rows]),
            LiveColumn(title="pid", cells=pids),
            column("user", lambda row: row.user, rank=8, least=8),
            column("age", lambda row: cells.age(row.age_s), rank=7, side="right"),
            column("cpu", lambda row: cells.percent(row.cpu_percent), rank=6, side="right"),
            column("memory", lambda row: cells.amount(row.memory_bytes), rank=5, side="right"),
            column("run", lambda row: None if row.run is None else row.run.name, rank=1, least=14),
            *_rank_columns(ranks),
            column("command", lambda row: row.command, rank=9 if any(ranks) else 2, least=16),
        ],
        kinds=[_kind_of(rank) for rank in ranks],
        width=width,
    )


def _by_device(snapshot: Snapshot) -> list[tuple[str, tuple[ProcessRow, ...]]]:
    """The processes by the name of their device."""
    named = [
        (f"gpu {rows.device.index}", rows.processes)
        for rows in snapshot.accelerators
        if isinstance(rows.device, Accelerator)
    ]
    return [*named, ("cpu", snapshot.processor.processes)]


def _rank_columns(ranks: Sequence[RankRow | None]) -> list[LiveColumn]:
    def column(title: str, of: Callable[[RankRow], str | None], *, rank: int | None = None) -> LiveColumn:
        texts = ["" if row is None else of(row) or "" for row in ranks]
        return LiveColumn(title=title, cells=texts, rank=rank, side="right")

    metric = _only_metric(ranks)
    return [
        column("rank", lambda row: str(row.beat.rank)),
        column("replica", lambda row: str(row.beat.replica), rank=12),
        column("stage", lambda row: row.beat.stage, rank=1),
        column("update", lambda row: f"{row.beat.update}/{row.beat.total_updates}"),
        column("images/s", lambda row: cells.speed(row.beat.images_per_second), rank=1),
        column("loss", lambda row: cells.score(row.beat.loss), rank=10),
        column(metric or "metric", lambda row: _metric(row, named=metric is None), rank=11),
        column("left", _state, rank=1),
    ]


def _only_metric(ranks: Sequence[RankRow | None]) -> str | None:
    """The metric that all ranks share; it then is the title of its column."""
    names = {row.beat.metric_name for row in ranks if row is not None and row.beat.metric_name is not None}
    return names.pop() if len(names) == 1 else None


def _metric(rank: RankRow, *, named: bool) -> str:
    value = cells.score(rank.beat.metric)
    return f"{rank.beat.metric_name} {value}" if named and value else value


def _state(rank: RankRow) -> str:
    """The time left of a rank that trains, else what it does or became."""
    if rank.life == "gone":
        return "died"
    if rank.life == "stale":
        return f"silent {cells.age(rank.age_s)}"
    left_s = rank.beat.seconds_left
    return cells.age(left_s) if rank.beat.state == "training" and left_s is not None else rank.beat.state


def _elsewhere(snapshot: Snapshot, *, width: int) -> list[Line]:
    ranks = snapshot.elsewhere

    def column(
        title: str, of: Callable[[RankRow], str], *, rank: int | None = None, least: int | None = None
    ) -> LiveColumn:
        return LiveColumn(title=title, cells=[of(row) for row in ranks], rank=rank, least=least)

    lines = _titled(
        [
            column("host", lambda row: row.beat.host, least=8),
            column("device", lambda row: row.beat.device, rank=9),
            column("pid", lambda row: str(row.beat.pid), rank=8),
            column("heard", lambda row: f"{cells.age(row.age_s)} ago", rank=7),
            column("run", lambda row: row.run.name, least=14),
            *_rank_columns(ranks),
        ],
        kinds=[_LIVES[row.life] for row in ranks],
        width=width,
    )
    return [Line("ranks on other hosts, and ranks that ended"[:width], "titles"), *lines]


def _kind_of(rank: RankRow | None) -> Kind:
    return "other" if rank is None else _LIVES[rank.life]


def _titled(columns: Sequence[LiveColumn], *, kinds: Sequence[Kind], width: int) -> list[Line]:
    titles, *rows = laid_out(columns, width=width)
    return [Line(titles, "titles"), *(Line(row, kind) for row, kind in zip(rows, kinds, strict=True))]
