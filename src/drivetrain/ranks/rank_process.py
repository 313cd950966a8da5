"""The main function of a rank process: set-up, its log, and reporting errors to the launcher."""

import faulthandler
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from drivetrain.core.errors import DrivetrainError
from drivetrain.core.process_exit import leave
from drivetrain.ranks.activity_note import NamelessFile, take_up_note
from drivetrain.ranks.find_place import place_variables
from drivetrain.ranks.parent_watch import die_with_parent_thread, watch_parent
from drivetrain.ranks.rank_failure import RankFailure, failing_layer, is_consequence
from drivetrain.ranks.rank_place import RankPlace

__all__ = [
    "CLEAN_STATUSES",
    "FORWARDED",
    "STACK_SIGNAL",
    "RankStart",
    "failure_of",
    "keep_log",
    "keep_logs_by",
    "print_to",
    "run_rank",
]

# Finished; stopped by the time limit; stopped by SIGINT; stopped by SIGTERM. None of them is a failure.
CLEAN_STATUSES = (0, 75, 130, 143)
FORWARDED = (signal.SIGINT, signal.SIGTERM)
STACK_SIGNAL = signal.SIGUSR2

_INTERRUPTED_STATUS = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStart:
    """The arguments of a rank process: its place and its connections to the launcher.

    `output` holds what a rank without a terminal prints until `keep_log` names a file. The rank writes the
    stacks of its threads to `stacks` when it receives STACK_SIGNAL, and its current activity to `note`.
    """

    place: RankPlace
    launcher_pid: int
    channel: "Connection[object, object]"
    listener: socket.socket | None
    output: NamelessFile
    stacks: NamelessFile
    note: NamelessFile
    has_terminal: bool


KeepLog = Callable[[Path], None]

_keep: KeepLog | None = None


def run_rank(start: RankStart, target: Callable[..., int | None], args: tuple[Any, ...]) -> NoReturn:
    """Calls the target and exits with its status; errors are sent to the launcher, which prints them."""
    try:
        _begin(start)
        status = target(*args) or 0
        failure = None if status in CLEAN_STATUSES else _failure_of_status(status, place=start.place)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        failure = None if status in CLEAN_STATUSES else _failure_of_status(status, place=start.place)
    except BaseException as error:
        failure = failure_of(error, rank=start.place.rank)
        status = failure.status
    if failure is not None:
        with suppress(OSError):
            start.channel.send(failure)
    leave(status)


def keep_log(path: Path) -> None:
    """Writes the past and future output of this rank to `path`; a rank with a terminal keeps using it."""
    if _keep is not None:
        _keep(path)


@contextmanager
def keep_logs_by(keep: KeepLog) -> Iterator[None]:
    """Makes `keep_log` call `keep` inside the block."""
    global _keep
    former, _keep = _keep, keep
    try:
        yield
    finally:
        _keep = former


def print_to(out: int, err: int) -> None:
    """Redirects the output of this process, and of those it starts, to these file descriptors."""
    # Buffered output still belongs to the former files.
    _flush()
    os.dup2(out, 1)
    os.dup2(err, 2)


def failure_of(error: BaseException, *, rank: int) -> RankFailure:
    """Describes an error of this process for the launcher."""
    is_sentence = isinstance(error, DrivetrainError)
    is_interrupt = isinstance(error, KeyboardInterrupt)
    return RankFailure(
        rank=rank,
        host=socket.gethostname(),
        time_s=time.time(),
        message=str(error) if is_sentence else _described(error),
        status=_status_of(error),
        is_sentence=is_sentence,
        is_consequence=is_consequence(error),
        is_interrupt=is_interrupt,
        traceback_text="".join(traceback.format_exception(error)),
    )


def _described(error: BaseException) -> str:
    text = "".join(traceback.format_exception_only(error)).strip()
    layer = failing_layer(error)
    return text if layer is None else f"{text} (in layer {layer})"


def _status_of(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED_STATUS
    return error.exit_status if isinstance(error, DrivetrainError) else DrivetrainError.exit_status


def _failure_of_status(status: int, *, place: RankPlace) -> RankFailure:
    return RankFailure(
        rank=place.rank, host=socket.gethostname(), time_s=time.time(), message=f"exit status {status}"
    )


def _begin(start: RankStart) -> None:
    # In a session of its own a rank gets no signals from the terminal: Ctrl-C reaches only the launcher,
    # which forwards it exactly once.
    os.setsid()
    die_with_parent_thread(start.launcher_pid)
    watch_parent(start.launcher_pid)
    if not start.has_terminal:
        _redirect(start)
    take_up_note(start.note)
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL, file=start.stacks.fileno())
    place = start.place
    if start.listener is not None:
        # Detached, since a socket object closes its descriptor when it is collected.
        place = replace(place, listen_fd=start.listener.detach())
    os.environ.update(place_variables(place))
    # Last, since the launcher started this process with the signals blocked: one that arrived during set-up
    # is delivered now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)


def _redirect(start: RankStart) -> None:
    global _keep
    print_to(start.output.fileno(), start.output.fileno())
    _keep = partial(_keep_output, start)


def _keep_output(start: RankStart, path: Path) -> None:
    _flush()
    with path.open("ab", buffering=0) as log:
        log.write(start.output.read())
        print_to(log.fileno(), log.fileno())
    start.output.clear()
    start.channel.send(path)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
