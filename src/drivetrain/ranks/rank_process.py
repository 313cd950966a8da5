"""What a rank process does around the function it was started for."""

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
from typing import Any

from drivetrain.core.errors import DrivetrainError
from drivetrain.core.process_exit import skip_last_collection
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

# Done; time is up; stopped by SIGINT and by SIGTERM.
CLEAN_STATUSES = (0, 75, 130, 143)
FORWARDED = (signal.SIGINT, signal.SIGTERM)
STACK_SIGNAL = signal.SIGUSR2

_INTERRUPTED_STATUS = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStart:
    """What a rank process is born with: its place and its way back to the launcher.

    `output` is where the output of a rank without a terminal waits for `keep_log`; to `stacks` it writes what
    its threads are doing when it is asked by STACK_SIGNAL, to `note` all the time what it is at.
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


def run_rank(start: RankStart, target: Callable[..., int | None], args: tuple[Any, ...]) -> None:
    """Calls the target and ends the process with its status; errors go to the launcher, not to the screen."""
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
    skip_last_collection()
    raise SystemExit(status)


def keep_log(path: Path) -> None:
    """Keeps what this rank has printed, and what it will, in `path`; a rank with a terminal goes on there."""
    if _keep is not None:
        _keep(path)


@contextmanager
def keep_logs_by(keep: KeepLog) -> Iterator[None]:
    """Inside, this is what `keep_log` does."""
    global _keep
    former, _keep = _keep, keep
    try:
        yield
    finally:
        _keep = former


def print_to(out: int, err: int) -> None:
    """This process and what it starts print to these files from now on."""
    _flush()
    os.dup2(out, 1)
    os.dup2(err, 2)


def failure_of(error: BaseException, *, rank: int) -> RankFailure:
    """What an error in this process looks like to the launcher."""
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
    # Of its own session: signals of the terminal reach the launcher alone, which passes them on once.
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
        place = replace(place, listen_fd=start.listener.detach())
    os.environ.update(place_variables(place))
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
