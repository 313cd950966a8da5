"""Trains folds of a cross-validation in this process, or several in parallel in processes of their own."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pickle import PicklingError

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError, DrivetrainError
from drivetrain.core.process_exit import skip_last_collection
from drivetrain.data.source import DataSplits
from drivetrain.models.own_model import MakeModel
from drivetrain.ranks.parent_watch import die_with_parent_thread, watch_parent
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe
from drivetrain.run.request import TrainingSeries
from drivetrain.run.session import RunResult
from drivetrain.run.start import train_resolved
from drivetrain.run.stopping import StopRequest
from drivetrain.store.directory import RunDirectory

__all__ = ["FoldOutcome", "FoldRequest", "OpenFold", "train_fold", "train_side_by_side"]

# How long the parent waits for a fold to end before it looks for signals and updates the progress line.
_LOOK_S = 0.2
OpenFold = Callable[[Recipe], DataSplits]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldOutcome:
    """How the process of a fold ended; `error` is set if it failed."""

    status: str
    exit_status: int = 0
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class _Fold:
    process: BaseProcess
    answers: "Connection[FoldOutcome, FoldOutcome]"
    slot: int
    is_told: bool = False


def train_side_by_side(
    folds: Sequence[int],
    *,
    at_once: int,
    train: Callable[[int, int], Callable[[], FoldOutcome]],
    may_begin: Callable[[], bool],
    stop: StopRequest,
    on_look: Callable[[Sequence[int]], None] = lambda _: None,
    on_end: Callable[[int, FoldOutcome], None],
) -> dict[int, FoldOutcome]:
    """Trains at most `at_once` folds in parallel, each in a slot 0, 1, ...; starts no more after a failure.

    train(fold, slot) returns the function that a process runs; it is pickled. The first fold starts alone and
    the others once `may_begin` returns True, so that a mistake in the request is reported only once.
    `on_look` is called a few times a second with the running folds.
    """
    waiting = list(folds)
    running: dict[int, _Fold] = {}
    ended: dict[int, FoldOutcome] = {}
    while running or (waiting and not _is_over(stop, ended)):
        while _has_room(running, at_once) and waiting and not _is_over(stop, ended):
            if running and not may_begin():
                break
            slot = min(set(range(at_once)) - {entry.slot for entry in running.values()})
            fold = waiting.pop(0)
            running[fold] = _start(train(fold, slot), slot=slot)
        wait([entry.process.sentinel for entry in running.values()], timeout=_LOOK_S)
        on_look(tuple(running))
        if stop.made:
            _pass_on(running, signal.SIGTERM)
        for fold in [number for number, entry in running.items() if not entry.process.is_alive()]:
            ended[fold] = _outcome(running.pop(fold))
            on_end(fold, ended[fold])
    return ended


def _has_room(running: Mapping[int, _Fold], at_once: int) -> bool:
    return len(running) < at_once


def _is_over(stop: StopRequest, ended: Mapping[int, FoldOutcome]) -> bool:
    return stop.made or any(outcome.status == "failed" for outcome in ended.values())


def _start(train: Callable[[], FoldOutcome], *, slot: int) -> _Fold:
    context = get_context("spawn")
    answers, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(train, theirs, os.getpid()))
    try:
        process.start()
    except (PicklingError, AttributeError, TypeError) as error:
        raise BadInputError(
            f"--parallel-folds sends data and model to other processes, but pickling them failed ({error}); "
            "leave it out, or define them at the top level of a module."
        ) from error
    theirs.close()
    return _Fold(process=process, answers=answers, slot=slot)


def _run(
    train: Callable[[], FoldOutcome], answers: "Connection[FoldOutcome, FoldOutcome]", parent: int
) -> None:
    # A session of its own: Ctrl-C in the terminal reaches only the parent, which forwards it once.
    os.setsid()
    die_with_parent_thread(parent)
    watch_parent(parent)
    try:
        answers.send(train())
    except DrivetrainError as error:
        answers.send(FoldOutcome(status="failed", exit_status=error.exit_status, error=str(error)))
    skip_last_collection()


def _outcome(entry: _Fold) -> FoldOutcome:
    entry.process.join()
    with suppress(EOFError):
        return entry.answers.recv()
    code = entry.process.exitcode or 0
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return FoldOutcome(status="failed", exit_status=1, error=f"its process {how}")


def _pass_on(running: Mapping[int, _Fold], number: int) -> None:
    for entry in running.values():
        if not entry.is_told and entry.process.pid is not None:
            entry.is_told = True
            os.kill(entry.process.pid, number)


@dataclass(frozen=True, slots=True)
class FoldRequest:
    """What the process of a fold receives, pickled; its --max-time counts from `began_s` on."""

    resolved: ResolvedRecipe
    open_fold: OpenFold | None
    make_model: MakeModel | None
    sibling: RunDirectory | None
    _: KW_ONLY
    began_s: float

    def train(
        self,
        *,
        reporter: Reporter,
        stop: StopRequest | None = None,
        series: TrainingSeries | None = None,
        on_prepared: Callable[[], None] | None = None,
    ) -> RunResult:
        """Trains the fold in this process."""
        return train_resolved(
            self.resolved,
            reporter=reporter,
            data=self._data(),
            make_model=self.make_model,
            stop=stop,
            series=series,
            sibling=self.sibling,
            on_prepared=on_prepared,
            began_s=self.began_s,
        )

    def _data(self) -> DataSplits | None:
        return None if self.open_fold is None else self.open_fold(self.resolved.recipe)


def train_fold(request: FoldRequest) -> FoldOutcome:
    with Reporter(quiet=True) as reporter:
        result = request.train(reporter=reporter)
    return FoldOutcome(status=result.status, exit_status=result.exit_status)
