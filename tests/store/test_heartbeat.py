"""Heartbeats of ranks: written whole, read back equal, and damaged ones are left out."""

import json
from dataclasses import replace
from pathlib import Path

from drivetrain.store.heartbeat import clear_heartbeats, read_heartbeats, write_heartbeat
from tests.store.written_beats import BEAT


def test_heartbeats_are_read_back_by_rank(tmp_path: Path) -> None:
    tenth = replace(BEAT, rank=10, state="finished")
    for beat in (tenth, BEAT, replace(BEAT, rank=2)):
        write_heartbeat(tmp_path, beat)
    assert read_heartbeats(tmp_path) == [BEAT, replace(BEAT, rank=2), tenth]
    assert [beat.is_over for beat in read_heartbeats(tmp_path)] == [False, False, True]
    assert [path.name for path in (tmp_path / "heartbeats").iterdir() if path.name.startswith(".")] == []


def test_a_later_heartbeat_replaces_the_earlier_one(tmp_path: Path) -> None:
    write_heartbeat(tmp_path, BEAT)
    write_heartbeat(tmp_path, replace(BEAT, update=4))
    assert [beat.update for beat in read_heartbeats(tmp_path)] == [4]


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    write_heartbeat(tmp_path, replace(BEAT, loss=float("nan"), seconds_left=float("inf")))
    content = json.loads((tmp_path / "heartbeats" / "rank-0.json").read_text())
    assert (content["loss"], content["seconds_left"]) == (None, None)


def test_files_that_are_no_heartbeats_are_left_out(tmp_path: Path) -> None:
    write_heartbeat(tmp_path, BEAT)
    folder = tmp_path / "heartbeats"
    whole = json.loads((folder / "rank-0.json").read_text())
    (folder / "rank-1.json").write_text('{"time": 1')
    (folder / "rank-2.json").write_text("[]")
    (folder / "rank-3.json").write_text(json.dumps({**whole, "state": "sleeping"}))
    (folder / "rank-4.json").write_text(json.dumps({**whole, "time": "now"}))
    (folder / "rank-7.json").write_text(json.dumps({**whole, "loss": "low"}))
    (folder / "rank-8.json").write_text(json.dumps({**whole, "host": None}))
    (folder / "rank-5.json").write_text(json.dumps({"time": 1.0}))
    (folder / "rank-6.json").write_text(json.dumps({**whole, "rank": 6, "of_a_newer_version": 1}))
    assert read_heartbeats(tmp_path) == [BEAT, replace(BEAT, rank=6)]


def test_a_run_without_heartbeats_has_none(tmp_path: Path) -> None:
    assert read_heartbeats(tmp_path) == read_heartbeats(tmp_path / "missing") == []
    clear_heartbeats(tmp_path / "missing")
    write_heartbeat(tmp_path, BEAT)
    clear_heartbeats(tmp_path)
    assert list(tmp_path.iterdir()) == []
