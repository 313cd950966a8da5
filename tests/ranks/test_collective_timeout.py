"""How long replicas wait for each other, by a clock that the test turns and by a rank that really stops."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import drivetrain
from drivetrain.inference.model.evaluator import Evaluator
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.collective_timeout import FIRST_VALIDATION_TIMEOUT_S, CollectiveTimeout
from drivetrain.ranks.launch import launch
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.run.loop import checkpoints as checkpoints_module
from drivetrain.run.loop import loop as loop_module
from drivetrain.state.saver import copy_sound_state
from tests.deadlines import HANG_S, wait_until
from tests.ranks.rank_functions import lives, pids_in
from tests.ranks.turned_clock import Clock
from tests.run.impatient import train_impatiently

pytestmark = pytest.mark.usefixtures("one_thread")

HOUR_S = 3600.0


def _patience(clock: Clock) -> tuple[CollectiveTimeout, list[float]]:
    timeouts: list[float] = []
    return CollectiveTimeout(timeouts.append, clock=clock), timeouts


def _updates(patience: CollectiveTimeout, clock: Clock, *seconds: float) -> None:
    for lasted_s in seconds:
        clock.pass_by(lasted_s)
        patience.end_update()


def test_compilation_may_take_long_and_says_little_about_updates() -> None:
    clock = Clock()
    patience, timeouts = _patience(clock)
    patience.begin_run()
    assert timeouts == [1800.0]
    _updates(patience, clock, 300.0)
    assert timeouts[-1] == 20 * 300.0
    _updates(patience, clock, 0.1)
    assert timeouts[-1] == 60.0
    _updates(patience, clock, 0.1, 0.2)
    assert len(timeouts) == 3


def test_slow_updates_are_waited_for_by_the_longest() -> None:
    clock = Clock()
    patience, timeouts = _patience(clock)
    patience.begin_run()
    _updates(patience, clock, 10.0, 4.0, 9.0, 5.0)
    assert timeouts[-1] == 20 * 9.0
    patience.begin_event(validates=False)
    _updates(patience, clock, 30.0, 4.0)
    assert timeouts[-1] == 20 * 9.0


def test_a_validation_of_hours_is_waited_for() -> None:
    clock = Clock()
    patience, timeouts = _patience(clock)
    patience.begin_run()
    _updates(patience, clock, 1.0, 1.0)
    patience.begin_event(validates=False)
    assert timeouts[-1] == 1800.0
    _updates(patience, clock, 2.0)
    patience.begin_event(validates=True)
    assert timeouts[-1] == FIRST_VALIDATION_TIMEOUT_S == 6 * HOUR_S
    clock.pass_by(2 * HOUR_S)
    _updates(patience, clock, 1.0, 1.0)
    assert timeouts[-1] == 60.0
    patience.begin_event(validates=False)
    assert timeouts[-1] == 1800.0
    _updates(patience, clock, 1.0)
    patience.begin_event(validates=True)
    assert timeouts[-1] == 20 * (2 * HOUR_S + 1.0)


def test_a_validation_before_the_first_update_hides_no_slow_update() -> None:
    clock = Clock()
    patience, timeouts = _patience(clock)
    patience.begin_run()
    patience.begin_event(validates=True)
    assert timeouts[-1] == FIRST_VALIDATION_TIMEOUT_S
    clock.pass_by(50.0)
    _updates(patience, clock, 100.0)
    assert timeouts[-1] == 20 * 150.0


@pytest.mark.parametrize("log_every", [1, 6])
def test_the_loop_sets_what_belongs_to_each_part_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_every: int
) -> None:
    """Updates of 5 s after one of 100 s, a checkpoint of 30 s every 2, a validation of 200 s every 3.

    A log line alone is nothing to wait longer for, however often there is one.
    """
    clock = Clock()
    timeouts: list[float] = []
    run_update, evaluate = TrainingProgram.run_update, Evaluator.__call__

    def slow_update(program: TrainingProgram, update: int) -> None:
        clock.pass_by(5.0 if update else 100.0)
        run_update(program, update)

    def slow_evaluation(*args: Any, **options: Any) -> Any:
        clock.pass_by(200.0)
        return evaluate(*args, **options)

    def slow_save(*args: Any, **options: Any) -> Any:
        clock.pass_by(30.0)
        return copy_sound_state(*args, **options)

    monkeypatch.setattr(TrainingProgram, "run_update", slow_update)
    monkeypatch.setattr(Evaluator, "__call__", slow_evaluation)
    monkeypatch.setattr(checkpoints_module, "copy_sound_state", slow_save)
    monkeypatch.setattr(
        loop_module, "CollectiveTimeout", lambda set_timeout: CollectiveTimeout(set_timeout, clock=clock)
    )
    monkeypatch.setattr(ReplicaGroup, "set_timeout", lambda _group, seconds: timeouts.append(seconds))
    drivetrain.train(
        dataset="digits",
        limit_train_samples=48,
        micro_batch_size=8,
        max_updates=6,
        evaluate_every=3,
        checkpoint_every=2,
        log_every=log_every,
        device="cpu",
        output_dir=str(tmp_path / "run"),
        quiet=True,
    )
    least_event, update = 1800.0, 20 * 5.0
    assert timeouts == [
        *(least_event, least_event),  # at the start of the process, and of the loop
        *(20 * 100.0, update),  # after the compiling update, after an ordinary one
        *(least_event, update),  # a checkpoint, then an update
        *(FIRST_VALIDATION_TIMEOUT_S, update),  # the first validation, with its checkpoint of the best
        *(least_event, update),
        20 * (200.0 + 30.0 + 5.0),  # the second validation
    ]


def test_a_stopped_rank_is_given_up_within_the_timeout(tmp_path: Path) -> None:
    """A process that is stopped keeps its connections: only the timeout of a sum finds it."""
    stopped_s: list[float] = []

    def stop_rank_1() -> None:
        wait_until((tmp_path / "under way").exists)
        os.kill(pids_in(tmp_path)[1], signal.SIGSTOP)
        stopped_s.append(time.monotonic())

    stopper = threading.Thread(target=stop_rank_1)
    stopper.start()
    result = launch(train_impatiently, args=(tmp_path, 2), ranks=2, threads_per_rank=1, grace_s=1.0)
    stopper.join()
    assert result.exit_status == 1
    assert result.failed is not None
    assert time.monotonic() - stopped_s[0] < HANG_S
    assert not any(map(lives, pids_in(tmp_path)))
