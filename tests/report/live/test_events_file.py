"""Lines are read once, and again only if the file is another one."""

from pathlib import Path

import pytest

from drivetrain.report.live import events_file
from drivetrain.report.live.events_file import EventsFile


def test_only_what_was_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"one\ntwo\n")
    events = EventsFile(path)
    first = events.read_new()
    assert (first.lines, first.is_fresh) == ([b"one", b"two"], True)
    with path.open("ab") as file:
        file.write(b"three\n")
    second = events.read_new()
    assert (second.lines, second.is_fresh) == ([b"three"], False)
    assert events.read_new().lines == []
    assert events.bytes_read == path.stat().st_size


def test_a_line_that_is_being_written_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"one\ntw")
    events = EventsFile(path)
    assert events.read_new().lines == [b"one"]
    assert events.read_new().lines == []
    with path.open("ab") as file:
        file.write(b"o\n")
    assert events.read_new().lines == [b"two"]


@pytest.mark.parametrize("content", [b"new\n", b"new\nold\n", b"new\nlonger\nthan before\n"])
def test_a_file_that_shrank_or_was_replaced_is_read_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"one\ntwo\n")
    events = EventsFile(path)
    events.read_new()
    (tmp_path / "other").write_bytes(content)
    (tmp_path / "other").replace(path)
    again = events.read_new()
    assert (again.lines, again.is_fresh) == (content.splitlines(), True)


def test_a_file_that_was_written_over_in_place_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"one\ntwo\n")
    events = EventsFile(path)
    events.read_new()
    path.write_bytes(b"one\nTWO\nthree\n")
    again = events.read_new()
    assert (again.lines, again.is_fresh) == ([b"one", b"TWO", b"three"], True)


def test_a_file_that_is_gone_comes_back_fresh(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    events = EventsFile(path)
    assert (events.read_new().lines, events.read_new().is_fresh) == ([], False)
    path.write_bytes(b"one\n")
    assert events.read_new().lines == [b"one"]
    path.unlink()
    gone = events.read_new()
    assert (gone.lines, gone.is_fresh) == ([], True)
    assert not events.read_new().is_fresh


def test_a_long_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_file, "_MOST_BYTES", 8)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"one\ntwo\na line that is too long\nthree\n")
    events, lines, rounds = EventsFile(path), [], 0
    while True:
        new = events.read_new()
        lines += new.lines
        rounds += 1
        if not new.has_more:
            break
    assert rounds > 3
    assert lines[:2] == [b"one", b"two"]
    assert lines[-1] == b"three"
    assert b"".join(lines[2:-1]) == b"a line that is too long"


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    import os

    path = tmp_path / "metrics.jsonl"
    os.mkfifo(path)
    assert EventsFile(path).read_new().lines == []
