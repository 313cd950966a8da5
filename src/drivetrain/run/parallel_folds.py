"""Folds that train side by side, each in a process of its own."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from drivetrain.cluster.parent_watch import die_with_parent_thread, watch_parent
from drivetrain.errors import DrivetrainError
from drivetrain.run.signals import StopRequest

__all__ = ["FoldOutcome", "train_side_by_side"]

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldOutcome:
    """How a fold's process ended; `error` is what stood in its way."""

    status: str
    exit_status: int = 0
    error: str | None = None


@dataclass(slots=True)
class _Fold:
    process: BaseProcess
    answers: "Connection[FoldOutcome, FoldOutcome]"
    is_told: bool = False


def train_side_by_side(
    folds: Mapping[int, Callable[[], FoldOutcome]],
    *,
    at_once: int,
    stop: StopRequest,
    on_end: Callable[[int, FoldOutcome], None],
) -> dict[int, FoldOutcome]:
    """Runs the functions, which travel by pickle, at most `at_once` at a time; a failure starts no more."""
    waiting = dict(folds)
    running: dict[int, _Fold] = {}
    ended: dict[int, FoldOutcome] = {}
    while running or (waiting and not stop.made and not _failed(ended)):
        while waiting and len(running) < at_once and not stop.made and not _failed(ended):
            fold = min(waiting)
            running[fold] = _start(waiting.pop(fold))
        wait([entry.process.sentinel for entry in running.values()], timeout=_LOOK_S)
        if stop.made:
            _pass_on(running, signal.SIGTERM)
        for fold in [number for number, entry in running.items() if not entry.process.is_alive()]:
            ended[fold] = _outcome(running.pop(fold))
            on_end(fold, ended[fold])
    return ended


def _start(train: Callable[[], FoldOutcome]) -> _Fold:
    context = get_context("spawn")
    answers, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(train, theirs, os.getpid()))
    process.start()
    theirs.close()
    return _Fold(process, answers)


def _run(
    train: Callable[[], FoldOutcome], answers: "Connection[FoldOutcome, FoldOutcome]", parent: int
) -> None:
    # Of its own session: the terminal's signals reach the job, which passes them on once.
    os.setsid()
    die_with_parent_thread(parent)
    watch_parent(parent)
    try:
        answers.send(train())
    except DrivetrainError as error:
        answers.send(FoldOutcome(status="failed", exit_status=error.exit_status, error=str(error)))


def _outcome(entry: _Fold) -> FoldOutcome:
    entry.process.join()
    if entry.answers.poll():
        return entry.answers.recv()
    code = entry.process.exitcode or 0
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return FoldOutcome(status="failed", exit_status=1, error=f"its process {how}")


def _pass_on(running: Mapping[int, _Fold], number: int) -> None:
    for entry in running.values():
        if not entry.is_told and entry.process.pid is not None:
            entry.is_told = True
            os.kill(entry.process.pid, number)


def _failed(ended: Mapping[int, FoldOutcome]) -> bool:
    return any(outcome.status == "failed" for outcome in ended.values())
