"""Starts the ranks of a job on this machine, and ends all of them when one fails."""

import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.ranks.rank_failure import RankFailure, primary_failure
from drivetrain.ranks.rank_job import RankJob
from drivetrain.ranks.rank_process import FORWARDED

__all__ = ["LaunchResult", "launch", "require_importable_script"]

# Messages end the wait at once; exits of ranks and signals to forward are noticed this often.
_LOOK_S = 0.05
# When a rank dies, the others may report a lost connection before the launcher sees the death itself. It
# waits this long for the real cause before it blames a consequence.
_PATIENCE_WITH_CAUSE_S = 5.0
# Progress bars hide the cursor, and a killed rank cannot show it again.
_SHOW_CURSOR = "\x1b[?25h\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult:
    """The outcome of a job; `failed` is the failure that caused the others, if there is one."""

    exit_status: int
    failed: RankFailure | None = None

    def settle(self) -> int:
        """Returns the exit status, or raises the failure; the traceback of a bug is printed first."""
        if self.failed is None:
            return self.exit_status
        _show_details(self.failed)
        raise self.failed.as_error()


def launch(
    target: Callable[..., int | None],
    *,
    args: tuple[Any, ...] = (),
    ranks: int,
    threads_per_rank: int | None = None,
    max_restarts: int = 0,
    grace_s: float = 5.0,
    say: Callable[[str], None] | None = None,
) -> LaunchResult:
    """Runs target(*args) in `ranks` processes, which learn their ranks from `find_place`.

    The target returns its exit status or raises. When one rank fails, all others get SIGTERM and `grace_s`
    seconds later SIGKILL; then all are restarted, up to `max_restarts` times. Only rank 0 prints to the
    terminal; the output of the others is lost unless they call `keep_log`.
    """
    require_importable_script()
    with _listening() as signals:
        for restart in range(max_restarts + 1):
            with RankJob(target, args=args, ranks=ranks, restart=restart, threads=threads_per_rank) as job:
                result = _Launcher(job, signals=signals, grace_s=grace_s).wait()
            failed = result.failed
            if failed is None or failed.is_bad_input or signals or restart == max_restarts:
                break
            _show_details(failed)
            (say or _say)(
                f"{failed.sentence.rstrip('.')}; all ranks are restarted (restart {restart + 1} of "
                f"{max_restarts})."
            )
    return result


class _Launcher:
    """Waits for a job, forwards signals to it and ends it once a rank has failed."""

    def __init__(self, job: RankJob, *, signals: list[int], grace_s: float) -> None:
        self._job, self._signals, self._grace_s = job, signals, grace_s
        self._sent = 0
        self._failed_s: float | None = None
        self._kill_s: float | None = None
        self._stacks = ""

    def wait(self) -> LaunchResult:
        """Returns when all ranks have ended or were killed."""
        while self._job.running:
            self._job.look(wait_s=_LOOK_S)
            self._pass_signals_on()
            now = time.monotonic()
            if self._kill_s is not None and now >= self._kill_s:
                self._job.kill()
            elif self._kill_s is None and self._is_over(now):
                self._end_all(now)
        return self._result()

    def _pass_signals_on(self) -> None:
        for number in self._signals[self._sent :]:
            self._job.send(number)
            self._sent += 1
            # A second signal makes a rank end at once, but not inside a kernel or a collective, where Python
            # handles no signals. SIGKILL follows after the grace period.
            if self._sent > 1 and self._kill_s is None:
                self._kill_s = time.monotonic() + self._grace_s

    def _is_over(self, now: float) -> bool:
        if not self._job.failures:
            return False
        if self._failed_s is None:
            self._failed_s = now
        return now >= self._failed_s + self._patience_s()

    def _patience_s(self) -> float:
        primary = primary_failure(self._job.failures)
        if primary.is_bad_input or self._signals:
            return self._grace_s
        return _PATIENCE_WITH_CAUSE_S if primary.is_consequence else 0.0

    def _end_all(self, now: float) -> None:
        if primary_failure(self._job.failures).is_consequence and not self._signals:
            self._stacks = self._job.stacks()
        self._job.begin_end()
        self._kill_s = now + self._grace_s

    def _result(self) -> LaunchResult:
        failures, statuses = self._job.failures, self._job.statuses
        if self._signals and all(map(self._is_by_signal, failures)):
            if failures or min(statuses.values()) < 0:
                return LaunchResult(exit_status=128 + self._signals[0])
            return LaunchResult(exit_status=_joint_status(statuses))
        if not failures:
            return LaunchResult(exit_status=_joint_status(statuses))
        primary = primary_failure(failures)
        everywhere = [failure.message for failure in failures] == [primary.message] * len(statuses)
        failed = replace(
            primary,
            is_everywhere=everywhere and primary.is_sentence,
            traceback_text="\n".join(filter(None, (self._stacks, primary.traceback_text))),
        )
        return LaunchResult(exit_status=failed.status, failed=failed)

    def _is_by_signal(self, failure: RankFailure) -> bool:
        by_signal = failure.signal_number in self._signals
        return by_signal or failure.is_interrupt or failure.is_consequence


def _joint_status(statuses: dict[int, int]) -> int:
    return statuses[0] or max(statuses.values())


@contextmanager
def _listening() -> Iterator[list[int]]:
    """Collects the signals that this process receives inside the block, in order."""
    received: list[int] = []
    # Python allows only the main thread to set signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        received.append(number)

    former = {number: signal.signal(number, note) for number in FORWARDED}
    try:
        yield received
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def require_importable_script() -> None:
    """Refuses a script without a main guard: every rank imports it, and would launch ranks again."""
    guard = "A script that starts ranks must do so under `if __name__ == '__main__':`; put the call there."
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise BadInputError(guard)
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None:
        return
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        raise BadInputError(
            f"Ranks import the script that starts them, but {file} is not a file; save the script as a file."
        ) from None
    if "__name__" not in text:
        raise BadInputError(guard)


def _show_details(failed: RankFailure) -> None:
    """Prints what precedes the error: the end of the progress bar, and the traceback of a bug."""
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR)
    if failed.traceback_text and not failed.is_sentence:
        sys.stderr.write(failed.traceback_text.rstrip() + "\n")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
