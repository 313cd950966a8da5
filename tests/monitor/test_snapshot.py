"""Which process stands under which device, and what has become of the ranks of runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drivetrain.monitor.readings import HostReading
from drivetrain.monitor.snapshot import STALE_S, DeviceRows, Snapshot, take_snapshot
from drivetrain.store.heartbeat import Heartbeat
from tests.monitor.hosts import BEAT, NOW, READING, RUN, accelerator, process


def _taken(*beats: Heartbeat, reading: HostReading = READING, **options: Any) -> Snapshot:
    return take_snapshot(reading, {RUN: beats}, **options)


def _pids(rows: DeviceRows) -> list[int]:
    return [row.pid for row in rows.processes]


def test_a_rank_is_marked_under_its_accelerator_and_not_under_the_cpu() -> None:
    snapshot = _taken(BEAT)
    first, second = snapshot.accelerators
    assert (_pids(first), _pids(second)) == ([11], [])
    (row,) = first.processes
    assert row.rank is not None
    assert (row.rank.beat, row.rank.life, row.rank.age_s, row.run) == (BEAT, "alive", 1.0, RUN)
    assert (row.user, row.command, row.age_s, row.memory_bytes) == (
        "ada",
        "python train_11.py",
        100.0,
        2 << 30,
    )
    assert snapshot.elsewhere == ()


def test_a_rank_that_the_driver_does_not_list_stands_under_the_device_it_names() -> None:
    bare = replace(READING, accelerators=[accelerator(0), accelerator(1)])
    of_second = replace(BEAT, device_id=str(accelerator(1).id))
    assert [_pids(rows) for rows in _taken(of_second, reading=bare).accelerators] == [[], [11]]
    by_index = replace(BEAT, device_id=None, device_index=1)
    assert [_pids(rows) for rows in _taken(by_index, reading=bare).accelerators] == [[], [11]]


def test_a_process_that_is_not_visible_here_has_only_a_number() -> None:
    hidden = replace(READING, accelerators=[accelerator(0, 77)], processes={})
    (row,) = take_snapshot(hidden, {}).accelerators[0].processes
    assert (row.pid, row.user, row.command, row.age_s, row.rank) == (77, None, None, None, None)
    assert row.memory_bytes == 2 << 30


def test_ranks_come_first_on_the_cpu_then_the_busy_processes() -> None:
    on_cpu = replace(BEAT, pid=12, device="cpu", device_index=None, device_id=None)
    load = {3: 80.0, 4: 4.0, 5: 20.0, 12: 1.0}
    reading = replace(READING, processes={pid: process(pid, cpu_percent=load[pid]) for pid in load})
    assert _pids(_taken(on_cpu, reading=reading).processor) == [12, 3, 5]


def test_loader_workers_belong_to_the_run_of_their_rank() -> None:
    reading = replace(READING, processes={11: process(11), 13: process(13, parent=11)})
    rows = {row.pid: row for row in _taken(BEAT, reading=reading).processor.processes}
    assert (rows[13].run, rows[13].rank) == (RUN, None)


@pytest.mark.parametrize(
    ("changes", "life"),
    [
        ({}, "alive"),
        ({"state": "finished"}, "over"),
        ({"time": NOW - STALE_S - 1}, "stale"),
        ({"pid": 99}, "gone"),
        ({"process_began": NOW - 50}, "gone"),
        ({"host": "gpu02", "pid": 99}, "alive"),
        ({"host": "gpu02", "time": NOW - STALE_S - 1}, "stale"),
    ],
)
def test_what_has_become_of_a_rank(changes: dict[str, Any], life: str) -> None:
    snapshot = _taken(replace(BEAT, **changes), named=[RUN])
    found = [row.rank for rows in snapshot.accelerators for row in rows.processes if row.rank is not None]
    assert [rank.life for rank in (*found, *snapshot.elsewhere)] == [life]


def test_ranks_that_ended_are_shown_only_of_a_run_that_is_named() -> None:
    over, forgotten = replace(BEAT, state="finished"), replace(BEAT, time=NOW - 7200)
    assert _taken(over).elsewhere == _taken(forgotten).elsewhere == ()
    assert len(_taken(over, named=[RUN]).elsewhere) == len(_taken(forgotten, named=[RUN]).elsewhere) == 1
    assert len(_taken(over, named=[Path("other")]).elsewhere) == 0
