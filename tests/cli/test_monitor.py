"""`drivetrain monitor` as a command: one table, JSON, a pipe, and mistakes."""

import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from drivetrain.cli.main import main
from drivetrain.store.heartbeat import Heartbeat, write_heartbeat

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose ranks are this process, and one on another host that was silent for long."""
    path = tmp_path / "runs" / "mine"
    path.mkdir(parents=True)
    for name in ("recipe.yaml", "identity.json"):
        (path / name).write_text("{}")
    own = Heartbeat(
        time=time.time(),
        host=socket.gethostname(),
        pid=os.getpid(),
        process_began=psutil.Process().create_time(),
        rank=0,
        replica=0,
        stage=None,
        state="training",
        update=3,
        total_updates=10,
    )
    write_heartbeat(path, own)
    write_heartbeat(path, replace(own, rank=1, host="far-away", time=own.time - 600))
    return path


def test_one_look_as_json(run: Path, capsys: Capture) -> None:
    assert main(["monitor", "--once", "--json", "--runs-dir", str(run.parent)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["host"]) == (1, socket.gethostname())
    (own,) = [row for row in found["cpus"]["processes"] if row["pid"] == os.getpid()]
    assert (own["rank"]["rank"], own["rank"]["update"], own["rank"]["life"]) == (0, 3, "alive")
    assert [(row["host"], row["life"]) for row in found["elsewhere"]] == [("far-away", "stale")]


def test_one_look_in_a_pipe_is_plain_text(run: Path, capsys: Capture) -> None:
    assert main(["monitor", "--once", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert any(line.split()[:2] == ["cpu", str(os.getpid())] for line in shown.splitlines())
    assert "far-away" in shown


def test_a_pipe_gets_one_line_of_json_after_the_other(
    run: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", look)
    assert main(["monitor", "--json", "--interval", "5", "--runs-dir", str(run.parent)]) == 0
    assert looks[1:] == [5.0, 5.0]
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["schema"] for line in lines] == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--interval", "0"], "--interval 0 is below 0.2 seconds; try --interval 2."),
        (["--interval", "nan"], "try --interval 2."),
        (["--runs-dir", "missing"], "--runs-dir missing does not exist"),
        (["missing"], "RUN missing does not exist"),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], words: str, capsys: Capture) -> None:
    assert main(["monitor", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
