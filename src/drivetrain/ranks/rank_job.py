"""The rank processes of one attempt, as the launcher sees them: starting, signals, failures, stacks."""

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from drivetrain.ranks.activity_note import NamelessFile, make_note_file, read_note
from drivetrain.ranks.rank_failure import RankFailure
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.ranks.rank_process import CLEAN_STATUSES, FORWARDED, STACK_SIGNAL, RankStart, run_rank
from drivetrain.ranks.threads import threads_of_each

__all__ = ["RankJob"]

_LOOPBACK = "127.0.0.1"
# All ranks connect at once, before rank 0 has imported torch and begins to accept.
_PENDING_CONNECTIONS = 1024
# faulthandler writes stacks from a signal handler and gives no sign when it is done.
_SECONDS_FOR_STACKS = 0.5
# A rank that dies without a message says why, if at all, in its last lines.
_LINES_OF_OUTPUT = 30


class RankJob:
    """Processes that run one function, with their exit statuses and failures.

    `own_args` are further arguments, one tuple per rank; with `has_terminal` rank 0 prints to the terminal of
    the launcher.
    """

    def __init__(
        self,
        target: Callable[..., int | None],
        *,
        args: tuple[Any, ...],
        ranks: int,
        restart: int = 0,
        threads: int | None = None,
        own_args: Sequence[tuple[Any, ...]] | None = None,
        has_terminal: bool = True,
    ) -> None:
        self.statuses: dict[int, int] = {}
        self.failures: list[RankFailure] = []
        self._target = target
        self._args = [(*args, *own) for own in own_args or [()] * ranks]
        self._size, self._restart, self._threads = ranks, restart, threads
        self._has_terminal = has_terminal
        self.host = socket.gethostname()
        self._processes: list[SpawnProcess] = []
        self._starts: list[RankStart] = []
        self._channels: dict[Connection[object, object], int] = {}
        self._logs: dict[int, Path] = {}
        self._is_ending = False

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._clear()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    @property
    def running(self) -> list[int]:
        """The ranks that have not ended."""
        return [rank for rank in range(len(self._processes)) if rank not in self.statuses]

    def send(self, number: int) -> None:
        """Sends a signal to every rank that runs."""
        for rank in self.running:
            with suppress(ProcessLookupError):
                os.kill(self._pid(rank), number)

    def begin_end(self) -> None:
        """Asks all ranks to end; from now on no exit status counts as a failure."""
        self._is_ending = True
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """Kills every running rank and the processes it started."""
        self._is_ending = True
        for rank in self.running:
            self._kill_group(rank)
            # A rank that has not called setsid yet has no process group of its own.
            with suppress(ProcessLookupError):
                os.kill(self._pid(rank), signal.SIGKILL)

    def look(self, *, wait_s: float) -> None:
        """Waits up to `wait_s` for messages and exits of ranks, and records them."""
        for ready in wait(list(self._channels), timeout=wait_s):
            assert isinstance(ready, Connection)
            self._read(ready)
        if not self._channels:
            time.sleep(wait_s)
        for rank in self.running:
            # Not the sentinel of the process: loader workers inherit its other end, so it would not fire
            # while one of them still runs.
            status = self._processes[rank].exitcode
            if status is not None:
                self._note_end(rank, status=status)

    def stacks(self) -> str:
        """The stacks of all threads of the running ranks."""
        ranks = self.running
        self.send(STACK_SIGNAL)
        time.sleep(_SECONDS_FOR_STACKS)
        seen = {rank: _text(self._starts[rank].stacks) for rank in ranks}
        return "\n".join(f"rank {rank} on {self.host} was still at:\n{text}" for rank, text in seen.items())

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        # Starting the resource tracker unblocks SIGINT and SIGTERM, so it must run before they are blocked.
        resource_tracker.ensure_running()
        listening = socket.create_server((_LOOPBACK, 0), backlog=_PENDING_CONNECTIONS)
        with listening as listener, threads_of_each(self._size, asked=self._threads):
            # A signal that arrives while ranks start waits until all of them can be told of it; ranks inherit
            # the mask and unblock the signals themselves once they are set up.
            former = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
            try:
                for rank in range(self._size):
                    self._start_rank(rank, listener=listener, context=context)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, former)

    def _start_rank(
        self, rank: int, *, listener: socket.socket, context: multiprocessing.context.SpawnContext
    ) -> None:
        own_end, rank_end = context.Pipe(duplex=False)
        place = RankPlace(
            rank=rank,
            world_size=self._size,
            local_rank=rank,
            local_world_size=self._size,
            address=_LOOPBACK,
            port=listener.getsockname()[1],
            launcher="drivetrain",
            restart=self._restart,
        )
        start = RankStart(
            place=place,
            launcher_pid=os.getpid(),
            channel=rank_end,
            listener=listener if rank == 0 else None,
            has_terminal=self._has_terminal and rank == 0,
            output=NamelessFile(),
            stacks=NamelessFile(),
            note=make_note_file(),
        )
        process = context.Process(
            target=run_rank, args=(start, self._target, self._args[rank]), name=f"drivetrain rank {rank}"
        )
        self._channels[own_end] = rank
        process.start()
        # With this copy open, the channel would not report its end when the rank dies.
        rank_end.close()
        self._starts.append(start)
        self._processes.append(process)

    def _read(self, channel: "Connection[object, object]") -> None:
        rank = self._channels[channel]
        try:
            news = channel.recv()
        except (EOFError, OSError):
            del self._channels[channel]
            channel.close()
            return
        if isinstance(news, Path):
            self._logs[rank] = news
        elif isinstance(news, RankFailure) and not self._is_ending:
            self.failures.append(news)

    def _note_end(self, rank: int, *, status: int) -> None:
        for channel in [channel for channel, owner in self._channels.items() if owner == rank]:
            while channel in self._channels and channel.poll():
                self._read(channel)
        self.statuses[rank] = status
        if status in CLEAN_STATUSES:
            return
        self._kill_group(rank)
        if not self._is_ending and all(failure.rank != rank for failure in self.failures):
            self.failures.append(self._unreported_failure(rank, status=status))

    def _unreported_failure(self, rank: int, *, status: int) -> RankFailure:
        where = f"its output is in {self._logs[rank]}" if rank in self._logs else "it left no error message"
        place, activity = read_note(self._starts[rank].note)
        return RankFailure(
            rank=rank,
            place=place,
            activity=activity,
            host=self.host,
            time_s=time.time(),
            message=f"{where}." if status < 0 else f"exit status {status}; {where}.",
            signal_number=-status if status < 0 else None,
            traceback_text=self._last_output(rank),
        )

    def _last_output(self, rank: int) -> str:
        return "\n".join(_text(self._starts[rank].output).splitlines()[-_LINES_OF_OUTPUT:])

    def _pid(self, rank: int) -> int:
        pid = self._processes[rank].pid
        assert pid is not None
        return pid

    def _kill_group(self, rank: int) -> None:
        """Kills the process group of a rank: itself, its loader workers and what they started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid(rank), signal.SIGKILL)

    def _clear(self) -> None:
        self.kill()
        for process in self._processes:
            process.join()
            process.close()
        for channel in self._channels:
            channel.close()
        for start in self._starts:
            start.output.close()
            start.stacks.close()
            start.note.close()


def _text(file: NamelessFile) -> str:
    return file.read().decode(errors="replace")
