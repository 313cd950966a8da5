"""The tables at every width: what they always say, and that they never grow wider."""

from dataclasses import replace

import pytest

from drivetrain.monitor.readings import HostReading
from drivetrain.monitor.snapshot import Snapshot, take_snapshot
from drivetrain.monitor.tables import snapshot_lines
from drivetrain.monitor.watch import plain_text, styled_lines
from tests.monitor.hosts import BEAT, NOW, READING, RUN

TWO_HOSTS = [BEAT, replace(BEAT, rank=1, host="gpu02", pid=5, stage="1"), replace(BEAT, rank=2, pid=99)]


def _taken(reading: HostReading = READING) -> Snapshot:
    return take_snapshot(reading, {RUN: TWO_HOSTS})


def _lines(snapshot: Snapshot, *, width: int) -> list[str]:
    return [line.text for line in snapshot_lines(snapshot, width=width)]


def _words(line: str) -> list[str]:
    return line.split()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200, 300])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    assert max(map(len, _lines(_taken(), width=width))) <= width


def test_a_wide_table_says_everything() -> None:
    text = "\n".join(_lines(_taken(), width=220))
    for cell in (
        "NVIDIA H200",
        "550.54.15",
        "96.00.99.00.01",
        "1652923034567",
        "1830/1980 MHz",
        "54 C",
        "61 C",
    ):
        assert cell in text
    for cell in (
        "512/700 W",
        "61.0/140.0 GiB",
        "98%",
        "ada",
        "1:40",
        "120/1000",
        "1234",
        "0.25",
        "0.875",
        "1:20",
    ):
        assert cell in text


def test_80_columns_say_the_essential() -> None:
    lines = _lines(_taken(), width=80)
    device = next(line for line in lines if line.startswith("gpu 0"))
    assert _words(device)[:6] == ["gpu", "0", "NVIDIA", "H200", "98%", "61.0/140.0"]
    rank = next(line for line in lines if "120/1000" in line)
    assert _words(rank)[:3] == ["gpu", "0", "11"]
    assert [word for word in ("0", "120/1000", "1234", "1:20") if word not in _words(rank)] == []


def test_a_device_without_a_process_has_a_row() -> None:
    assert any(line.startswith("gpu 1  no process") for line in _lines(_taken(), width=80))
    idle = replace(READING, processes={})
    assert any(line.startswith("cpu    no process") for line in _lines(_taken(idle), width=80))


def test_ranks_elsewhere_say_what_became_of_them() -> None:
    kinds = {line.text.split()[0]: line.kind for line in snapshot_lines(_taken(), width=200)[-2:]}
    assert kinds == {"gpu02": "ours", "gpu01": "gone"}
    assert _lines(_taken(), width=200)[-1].endswith("died")


def test_a_rank_that_is_silent_says_for_how_long() -> None:
    silent = take_snapshot(READING, {RUN: [replace(BEAT, time=NOW - 75)]})
    lines = snapshot_lines(silent, width=200)
    assert [line.kind for line in lines if "silent 1:15" in line.text] == ["stale"]


def test_without_an_accelerator_the_reason_stands_there() -> None:
    bare = take_snapshot(replace(READING, accelerators=[], notes=["no driver"]), {})
    assert _lines(bare, width=80)[2:4] == ["no accelerator", "no driver"]


def test_plain_text_has_no_escape_codes() -> None:
    assert "\x1b" not in plain_text(_taken())


def test_a_screen_that_is_too_low_says_how_much_is_missing() -> None:
    lines = snapshot_lines(_taken(), width=80)
    shown = styled_lines(lines, height=5).plain.splitlines()
    assert len(shown) == 5
    assert shown[-1] == f"{len(lines) - 4} more lines; --once prints all"
    assert len(styled_lines(lines, height=100).plain.split("\n")) == len(lines)
