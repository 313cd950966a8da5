"""Whether a run goes on, from files that its host, or another one, leaves."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from drivetrain.store.heartbeat import write_heartbeat
from drivetrain.store.lock import hold_lock
from drivetrain.store.run_state import Beat, Pulse, State, first_beat, state_now, state_of, state_of_job
from tests.store.written_beats import BEAT

_BEAT = replace(BEAT, host="elsewhere", pid=1)


def _beat(**content: Any) -> Beat:
    return Beat(written_s=0.0, content=replace(_BEAT, **content))


def _state(**signs: Any) -> State:
    usual: dict[str, Any] = {"has_summary": False, "is_held": False, "beat": None, "silence_s": 0.0}
    return state_of(**{**usual, **signs})


def test_the_summary_comes_first_and_then_the_lock() -> None:
    assert _state(has_summary=True, is_held=True, beat=_beat()) == "finished"
    assert _state(is_held=True, beat=_beat(state="stopped"), silence_s=1e6) == "running"
    assert _state() == "stopped"


def test_a_heartbeat_is_believed_for_half_a_minute() -> None:
    assert _state(beat=_beat(), silence_s=29.0) == "running"
    assert _state(beat=_beat(), silence_s=31.0) == "stopped"
    assert _state(beat=_beat(state="stopped")) == "stopped"


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


def test_the_heartbeat_of_the_first_rank_counts(tmp_path: Path) -> None:
    """The others end before it draws its pictures, and one that hangs would go on beating."""
    assert first_beat(tmp_path) is None
    write_heartbeat(tmp_path, replace(_BEAT, rank=1, state="finished"))
    assert first_beat(tmp_path) is None
    write_heartbeat(tmp_path, _BEAT)
    path = tmp_path / "heartbeats" / "rank-0.json"
    os.utime(path, (990, 990))
    assert first_beat(tmp_path) == Beat(written_s=990.0, content=_BEAT)


def test_what_is_no_heartbeat_is_none(tmp_path: Path) -> None:
    write_heartbeat(tmp_path, _BEAT)
    path = tmp_path / "heartbeats" / "rank-0.json"
    for content in ("{", "[]", "[" * 10**5, json.dumps({"state": "unheard of"}), json.dumps({"pid": "1"})):
        path.write_text(content)
        assert first_beat(tmp_path) is None
    path.unlink()
    os.mkfifo(path)
    assert first_beat(tmp_path) is None


def test_a_run_of_another_host_goes_on_without_a_lock_here(tmp_path: Path) -> None:
    assert state_now(tmp_path, has_summary=False) == "stopped"
    write_heartbeat(tmp_path, _BEAT)
    assert state_now(tmp_path, has_summary=False) == "running"
    assert state_now(tmp_path, has_summary=True) == "finished"
    write_heartbeat(tmp_path, replace(_BEAT, state="stopped"))
    assert state_now(tmp_path, has_summary=False) == "stopped"
    with hold_lock(tmp_path):
        assert state_now(tmp_path, has_summary=False) == "running"


def test_a_cross_validation_goes_on_while_a_fold_does() -> None:
    done = {"status": "finished"}
    assert state_of_job({}, is_held=False, folds=["finished", "running"]) == "running"
    assert state_of_job(done, is_held=True, folds=["finished"]) == "running"
    assert state_of_job(done, is_held=False, folds=["finished"]) == "finished"
    assert state_of_job({}, is_held=False, folds=["finished", "stopped"]) == "stopped"
