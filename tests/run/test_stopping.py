"""`--max-time` by a clock that the test turns: it counts from the start, and leaves room to save."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivetrain.inference.model.evaluator import Evaluator
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.collective_timeout import CollectiveTimeout
from drivetrain.run import session as session_module
from drivetrain.run.compiling import compile_choice, kept_choice
from drivetrain.run.compiling.compile_timer import MeasuringStoppedError, ProgramTimer
from drivetrain.run.loop import checkpoints as checkpoints_module
from drivetrain.run.loop import loop as loop_module
from drivetrain.run.stopping import TimeLimit
from drivetrain.state.saver import copy_sound_state
from drivetrain.store.checkpoint_paths import checkpoint_paths
from drivetrain.store.metrics_file import read_metrics
from tests.ranks.turned_clock import Clock
from tests.run.small_training import TrainSmall

pytestmark = pytest.mark.usefixtures("no_pictures")

UPDATE_S, FIRST_UPDATE_S, COPY_S, VALIDATION_S = 5.0, 100.0, 30.0, 200.0
BEFORE_S = 60.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A run whose process has spent 60 s before its loop, and whose parts take what is said above."""
    clock = Clock()
    run_update, evaluate = TrainingProgram.run_update, Evaluator.__call__

    def slow_update(program: TrainingProgram, update: int) -> None:
        clock.pass_by(UPDATE_S if update else FIRST_UPDATE_S)
        run_update(program, update)

    def slow_evaluation(evaluator: Evaluator, *, on_batch: Any, **options: Any) -> Any:
        def slow_batch(samples: int) -> None:
            clock.pass_by(VALIDATION_S / 5)
            on_batch(samples)

        return evaluate(evaluator, on_batch=slow_batch, **options)

    def slow_copy(*args: Any, **options: Any) -> Any:
        clock.pass_by(COPY_S)
        return copy_sound_state(*args, **options)

    def limit(seconds: float, *, began_s: float) -> TimeLimit:
        assert began_s <= time.time()
        return TimeLimit(seconds, began_s=-BEFORE_S, clock=clock)

    monkeypatch.setattr(TrainingProgram, "run_update", slow_update)
    monkeypatch.setattr(Evaluator, "__call__", slow_evaluation)
    monkeypatch.setattr(checkpoints_module, "copy_sound_state", slow_copy)
    monkeypatch.setattr(
        loop_module, "CollectiveTimeout", lambda set_timeout: CollectiveTimeout(set_timeout, clock=clock)
    )
    monkeypatch.setattr(session_module, "TimeLimit", limit)
    return clock


@pytest.mark.parametrize("max_time", [200, 240, 270, 299, 300, 331])
@pytest.mark.parametrize("checkpoint_every", [2, 100])
def test_a_run_ends_with_its_checkpoint_before_the_time_is_up(
    max_time: int, checkpoint_every: int, clock: Clock, tmp_path: Path, train_small: TrainSmall
) -> None:
    options: dict[str, Any] = {
        "evaluate_every": 10**6,
        "checkpoint_every": checkpoint_every,
        "num_epochs": 30,
        "lr_schedule": "const",
    }
    result = train_small(tmp_path / "run", max_time=max_time, **options)
    assert (result.status, result.exit_status) == ("stopped", 75)
    assert result.updates > 1
    newest = checkpoint_paths(tmp_path / "run" / "checkpoints")[-1]
    assert newest.name == str(result.updates)
    if checkpoint_every == 2:
        # What copying takes is known from the second update on.
        assert clock.now_s + BEFORE_S <= max_time
        assert clock.now_s + BEFORE_S + COPY_S + 2 * UPDATE_S + COPY_S >= max_time


def test_a_validation_for_which_there_is_no_time_is_broken_off_and_owed(
    clock: Clock, tmp_path: Path, train_small: TrainSmall
) -> None:
    options: dict[str, Any] = {"evaluate_every": 4, "checkpoint_every": 2, "validation_micro_batch_size": 8}
    result = train_small(tmp_path / "run", max_time=300, **options)
    assert (result.status, result.exit_status, result.updates) == ("stopped", 75, 4)
    assert clock.now_s + BEFORE_S <= 300 + VALIDATION_S / 5
    assert not any("validation" in line for line in (tmp_path / "run" / "metrics.jsonl").open())


def test_a_stopped_run_tells_its_latest_validation_also_one_from_before_it_went_on(
    clock: Clock, tmp_path: Path, train_small: TrainSmall
) -> None:
    early = train_small(tmp_path / "run", max_time=1, evaluate_every=3)
    assert (early.status, early.updates, early.metrics) == ("stopped", 1, {})
    max_time = clock.now_s + BEFORE_S + 160
    validated = train_small(tmp_path / "run", max_time=max_time, evaluate_every=3)
    assert validated.status == "stopped"
    events = read_metrics(tmp_path / "run" / "metrics.jsonl")
    newest = [event for event in events if event["event"] == "validation"][-1]
    assert validated.metrics["validation"]["accuracy"] == newest["accuracy"]
    assert validated.metrics["best"]["update"] <= newest["update"] <= validated.updates
    # The first of these pays a validation that the stop may have left owed; the second makes none.
    paid, later = (train_small(tmp_path / "run", max_time=1, evaluate_every=3) for _ in range(2))
    assert (later.status, later.updates) == ("stopped", validated.updates + 2)
    assert later.metrics == paid.metrics
    assert later.metrics["validation"]["accuracy"] > 0


def test_a_training_that_is_stopped_is_not_called_done(
    clock: Clock, tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.console.reporter._LINE_PERIOD_S", 0.0)
    train_small(tmp_path / "run", max_time=331, evaluate_every=10**6, lr_schedule="const")
    log = (tmp_path / "run" / "rank-0.log").read_text()
    assert "the time limit of --max-time is reached: stopped after update" in log
    assert re.search(r"^training \d", log, re.MULTILINE)
    assert "training: done" not in log
    train_small(tmp_path / "whole", evaluate_every=10**6, lr_schedule="const")
    assert "training: done" in (tmp_path / "whole" / "rank-0.log").read_text()


def test_every_start_gets_further_however_little_time_there_is(
    clock: Clock, tmp_path: Path, train_small: TrainSmall
) -> None:
    for updates in (1, 2):
        result = train_small(tmp_path / "run", max_time=1)
        assert (result.status, result.exit_status, result.updates) == ("stopped", 75, updates)


def test_the_longest_time_of_each_step_is_reserved() -> None:
    clock = Clock()
    limit = TimeLimit(100.0, began_s=0.0, clock=clock)
    for lasted_s in (10.0, 20.0, 5.0):
        with limit.timing("copying"):
            clock.pass_by(lasted_s)
    limit.reserve("writing", 15.0)
    assert (limit.longest("copying"), limit.longest("another")) == (20.0, 0.0)
    clock.pass_by(29.0)
    assert not limit.is_up()
    assert limit.is_up(beside=1.0)
    clock.pass_by(1.0)
    assert limit.is_up()


def test_a_guess_counts_until_the_step_has_been_timed() -> None:
    limit = TimeLimit(100.0, began_s=0.0, clock=Clock())
    limit.guess("writing", 100.0)
    assert limit.is_up()
    limit.reserve("writing", 5.0)
    assert limit.longest("writing") == 5.0
    assert not limit.is_up(beside=94.0)
    assert limit.is_up(beside=95.0)


def test_a_run_reserves_what_writing_really_takes(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[TimeLimit] = []

    def limit(seconds: float, *, began_s: float) -> TimeLimit:
        limits.append(TimeLimit(seconds, began_s=began_s))
        return limits[-1]

    monkeypatch.setattr(session_module, "TimeLimit", limit)
    monkeypatch.setattr(checkpoints_module, "_GUESSED_WRITING", 0.01)
    # Before the second checkpoint the first one is written.
    train_small(tmp_path / "run", max_time=10**12, checkpoint_every=1, max_updates=4)
    assert 0.0 < limits[0].longest("writing") < 10**5


def test_what_compiling_pays_is_measured_within_the_time_that_is_left(
    clock: Clock, tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def choose(*_: Any, max_time_s: float, goes_on: Callable[[], bool], **__: Any) -> None:
        seen.extend([max_time_s, goes_on()])
        clock.pass_by(max_time_s)
        seen.append(goes_on())

    monkeypatch.setattr(kept_choice, "choose_compile", choose)
    result = train_small(tmp_path / "run", max_time=300)
    assert seen == [300 - BEFORE_S, True, False]
    assert (result.status, result.exit_status, result.updates) == ("stopped", 75, 1)


def test_a_run_whose_measuring_is_stopped_goes_on_uncompiled(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bool] = []
    runs_compiled: list[bool] = []
    run_update = TrainingProgram.run_update

    def stop_measuring(timer: ProgramTimer) -> tuple[float, float]:
        timer._switch(on=True)
        tried.append(timer._program.compiled.is_on)
        raise MeasuringStoppedError

    def noting_update(program: TrainingProgram, update: int) -> None:
        runs_compiled.append(program.compiled.is_on)
        run_update(program, update)

    monkeypatch.setattr(compile_choice, "FEWEST_UPDATES", 1)
    monkeypatch.setattr(ProgramTimer, "time_plain", stop_measuring)
    monkeypatch.setattr(compile_choice, "recall_gain", lambda _: None)
    monkeypatch.setattr(TrainingProgram, "run_update", noting_update)
    train_small(tmp_path / "run", compile="auto", max_updates=2)
    assert tried == [True]
    assert runs_compiled == [False, False]
