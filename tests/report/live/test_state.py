"""Whether a run goes on, from files that its host, or another one, leaves."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from drivetrain.report.live.heartbeat import Beat, newest_beat
from drivetrain.report.live.state import Pulse, State, state_of


def _beat(**content: Any) -> Beat:
    return Beat(written_s=0.0, content={"host": "elsewhere", "pid": 1, "state": "training", **content})


def _state(**signs: Any) -> State:
    usual: dict[str, Any] = {
        "has_summary": False,
        "is_locked": False,
        "beat": None,
        "silence_s": 0.0,
        "seconds_per_event": 1.0,
    }
    return state_of(**{**usual, **signs})


def test_the_summary_comes_first_and_then_the_lock() -> None:
    assert _state(has_summary=True, is_locked=True) == "finished"
    assert _state(is_locked=True, silence_s=1e6) == "running"


def test_a_heartbeat_is_believed_for_half_a_minute() -> None:
    assert _state(beat=_beat(), silence_s=29.0, seconds_per_event=1e3) == "running"
    assert _state(beat=_beat(), silence_s=31.0, seconds_per_event=1e3) == "stopped"
    assert _state(beat=_beat(state="stopped")) == "stopped"


def test_without_heartbeats_the_pace_of_the_events_says_how_long_to_wait() -> None:
    assert _state(silence_s=59.0) == "running"
    assert _state(silence_s=61.0) == "stopped"
    assert _state(silence_s=299.0, seconds_per_event=100.0) == "running"
    assert _state(silence_s=301.0, seconds_per_event=100.0) == "stopped"


def test_a_process_of_this_host_that_is_gone_does_not_train() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = socket.gethostname()
    assert _state(beat=_beat(host=here, pid=os.getpid())) == "running"
    assert _state(beat=_beat(host=here, pid=gone.pid)) == "stopped"
    assert _state(beat=_beat(host=here, pid=-1)) == "stopped"
    assert _state(beat=_beat(host="elsewhere", pid=gone.pid)) == "running"


def test_a_change_that_was_seen_counts_by_the_clock_of_this_host() -> None:
    pulse, long_ago_s = Pulse(), time.time() - 5000
    assert pulse.age_s(long_ago_s) >= 5000
    assert pulse.age_s(long_ago_s) >= 5000
    assert pulse.age_s(long_ago_s + 1) < 4000
    assert Pulse().age_s(time.time() + 5000) == 0


def test_the_newest_heartbeat_counts(tmp_path: Path) -> None:
    assert newest_beat(tmp_path) is None
    folder = tmp_path / "heartbeats"
    folder.mkdir()
    assert newest_beat(tmp_path) is None
    for rank, age_s in ((0, 100), (1, 10)):
        path = folder / f"rank-{rank}.json"
        path.write_text(json.dumps({"rank": rank, "update": 10**400}))
        os.utime(path, (1000 - age_s, 1000 - age_s))
    beat = newest_beat(tmp_path)
    assert beat is not None
    assert (beat.content["rank"], beat.written_s, beat.number("rank")) == (1, 990, 1.0)
    assert (beat.number("update"), beat.number("loss")) == (None, None)
    (folder / "rank-1.json").write_text("{")
    assert newest_beat(tmp_path) is None
