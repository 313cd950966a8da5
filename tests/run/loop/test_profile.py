"""--profile: a timeline of some updates, of a model in one piece and of stages on several ranks."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from drivetrain.console.reporter import Reporter
from drivetrain.pictures.update.picture import UpdatePicture, draw_update
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE
from drivetrain.run.loop import profile
from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.recorded_timeline import MemoryStep, TimedSpan, TimelineRecorder
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import read_metrics
from tests.run.rank_runs import train_rank
from tests.run.small_training import TrainSmall


def _events(path: Path) -> list[dict[str, Any]]:
    trace = json.loads((path / "profile.json").read_text())
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def _summary(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_metrics(path / "metrics.jsonl")[-1]["profile"]
    return found


def _kinds(events: list[dict[str, Any]]) -> set[str]:
    return {event["cat"] for event in events}


@pytest.mark.usefixtures("no_pictures")
def test_a_model_in_one_piece_has_one_row(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[UpdatePicture] = []

    def draw(paths: Sequence[Path], picture: UpdatePicture, *, with_memory: bool) -> None:
        drawn.append(picture)
        draw_update(paths, picture, with_memory=with_memory)

    monkeypatch.setattr(profile, "draw_update", draw)
    train_small(tmp_path / "run", max_updates=4, profile=2)
    events = _events(tmp_path / "run")
    assert _kinds(events) == {"data", "forward", "backward", "optimiser update"}
    assert {(event["pid"], event["tid"]) for event in events} == {(0, 0)}
    # The first update warms up; then two, of two micro-batches each.
    assert sorted(event["args"]["update"] for event in events if event["cat"] == "backward") == [1, 1, 2, 2]
    summary = _summary(tmp_path / "run")
    assert (summary["first_update"], summary["last_update"]) == (1, 2)
    assert 0 <= summary["bubble"] < 1
    assert "simulated_bubble" not in summary
    assert (tmp_path / "run" / "profile.png").read_bytes().startswith(b"\x89PNG")
    assert "profile.png" in (tmp_path / "run" / "README.md").read_text()
    _check_drawn(drawn)


def _check_drawn(drawn: list[UpdatePicture]) -> None:
    """The last update as measured, beside a prediction that is as long; a CPU counts no memory."""
    ((measured, predicted),) = (picture.courses for picture in drawn)
    assert {span.update for span in measured.spans} == {2}
    assert not measured.memory
    assert predicted.memory
    passes = [[span for span in course.spans if span.is_pass] for course in (measured, predicted)]
    assert [[str(span.action) for span in each] for each in passes] == [["F0@0", "B0@0", "F1@0", "B1@0"]] * 2
    lengths_s = [sum(span.seconds for span in each) for each in passes]
    assert lengths_s[0] == pytest.approx(lengths_s[1])
    assert drawn[0].limit_bytes is None


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("updates", "words"),
    [
        (3, "--profile 3 records updates after the first one, but this run has only 1; --max-updates 4"),
        (None, ""),
    ],
)
def test_a_run_too_short_is_told(
    updates: int | None, words: str, tmp_path: Path, train_small: TrainSmall
) -> None:
    train_small(tmp_path / "run", max_updates=2, profile=updates)
    log = (tmp_path / "run" / "rank-0.log").read_text()
    assert words in log
    assert (tmp_path / "run" / "profile.json").exists() == (updates is not None)
    assert ("--profile" in log) == (updates is not None)


@pytest.mark.usefixtures("no_pictures")
def test_a_run_of_one_update_is_told_that_nothing_was_recorded(
    tmp_path: Path, train_small: TrainSmall
) -> None:
    train_small(tmp_path / "run", max_updates=1, profile=1)
    assert "--profile recorded nothing" in (tmp_path / "run" / "rank-0.log").read_text()
    assert not (tmp_path / "run" / "profile.json").exists()
    assert "profile" not in read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]


def test_the_weights_are_those_of_a_run_without(tmp_path: Path) -> None:
    options = {"stages": 2, "max_updates": 3, "pipeline_schedule": "zero-bubble", "micro_batch_size": 4}
    plain = train_rank(ALONE, str(tmp_path / "plain"), options)
    assert train_rank(ALONE, str(tmp_path / "profiled"), {**options, "profile": 2}) == plain
    events = _events(tmp_path / "profiled")
    assert {"forward", "input", "weight"} < _kinds(events)
    assert {event["tid"] for event in events} == {0, 1}
    summary = _summary(tmp_path / "profiled")
    # One process plays both devices by turns, so only the simulator can tell.
    assert "bubble" not in summary
    assert 0 < summary["simulated_bubble"] < 1


def test_stages_and_replicas_have_rows_of_their_own(rank_pool: RankPool, tmp_path: Path) -> None:
    options = {"stages": 2, "replicas": 2, "max_updates": 3, "micro_batch_size": 4, "profile": 2}
    rank_pool.run(train_rank, str(tmp_path / "run"), options)
    events = _events(tmp_path / "run")
    assert {(event["pid"], event["tid"]) for event in events} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    kinds = {"data", "wait", "forward", "backward", "send", "gradient sum", "optimiser update"}
    assert _kinds(events) == kinds
    forwards = [event for event in events if event["cat"] == "forward" and event["pid"] == 1]
    # Two updates of two micro-batches, each through two stages.
    assert len(forwards) == 2 * 2 * 2
    # A stage does not begin before the one that feeds it has sent: the ranks' clocks are aligned.
    for event in (event for event in forwards if event["tid"] == 1):
        same = [sent for sent in forwards if sent["args"] == {**event["args"], "stage": 0}]
        assert [sent["tid"] for sent in same] == [0]
        assert same[0]["ts"] < event["ts"]
    summary = _summary(tmp_path / "run")
    assert 0 < summary["bubble"] < 1
    assert 0 < summary["simulated_bubble"] < 1
    log = (tmp_path / "run" / "rank-0.log").read_text()
    assert f"bubble {summary['bubble']:.1%} in updates 1 to 2" in log
    assert f"{summary['simulated_bubble']:.1%} in a simulation" in log


def _recorded(directory: Path, *, plays_several: bool) -> UpdatePicture:
    """What is drawn of a recorded update with 5 GB on the accelerator, and files of it in a directory."""
    recorder = TimelineRecorder(range(1), replica=0, devices=[0], synchronise=lambda: None)
    action = Action(Kind.FORWARD, 0, 0)
    recorder.spans += [
        TimedSpan(0, 0, 0, "forward", action, 1.0, 2.0, 5 * 10**9),
        TimedSpan(0, 0, 0, "optimiser update", None, 2.0, 3.0, 10**9),
    ]
    drawn: list[UpdatePicture] = []
    with mock.patch.object(profile, "draw_update", lambda _, picture, **__: drawn.append(picture)):
        profile.RunProfile(
            recorder=recorder,
            devices=1,
            plays_several=plays_several,
            schedule_of=None,
            edges=(),
            limit_bytes=80 * 10**9,
        ).finish(ALONE, directory=RunDirectory(directory), reporter=Reporter(quiet=True))
    return drawn[0]


def test_memory_of_an_accelerator_is_drawn_and_traced(tmp_path: Path) -> None:
    picture = _recorded(tmp_path, plays_several=False)
    assert picture.measured is not None
    assert picture.measured.memory == [MemoryStep(0, 0, 2.0, 3.0, 5 * 10**9)]
    assert picture.limit_bytes == 80 * 10**9
    assert [event["args"]["memory_bytes"] for event in _events(tmp_path)] == [5 * 10**9, 10**9]


def test_memory_of_a_process_that_plays_several_devices_is_that_of_none(tmp_path: Path) -> None:
    picture = _recorded(tmp_path, plays_several=True)
    assert picture.measured is not None
    assert not picture.measured.memory
    assert picture.predicted is None
