"""Runs the work of a rank that torchrun, SLURM or MPI started: its log and how its errors are reported."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drivetrain.core.errors import DrivetrainError
from drivetrain.ranks.rank_failure import RankFailure
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.ranks.rank_process import failure_of, keep_logs_by, print_to

__all__ = ["launched_rank"]

_STANDARD_OUTPUTS = (1, 2)


@contextmanager
def launched_rank(place: RankPlace) -> Iterator[None]:
    """Makes `keep_log` work inside the block, and turns an error into one sentence that names rank and host.

    The traceback of a bug is printed before it.
    """
    output = _Output()
    try:
        with keep_logs_by(output.turn_to):
            yield
    except Exception as error:
        failure = failure_of(error, rank=place.rank)
        if output.is_turned:
            sys.stderr.write(f"{failure.traceback_text}{failure.sentence}\n")
        output.turn_back()
        if not (failure.is_sentence or failure.is_consequence):
            sys.stderr.write(failure.traceback_text)
        final = failure.as_error()
        if place.launcher == "torchrun":
            _tell_torchrun(failure, final)
        raise final from None
    finally:
        output.turn_back()


class _Output:
    """The output of this process: that of its launcher, or a log file."""

    def __init__(self) -> None:
        self._former: list[int] = []

    @property
    def is_turned(self) -> bool:
        return bool(self._former)

    def turn_to(self, path: Path) -> None:
        """Redirects the output to a file; if it cannot be opened, nothing changes."""
        try:
            # Rank 0 made the run directory on its own host; on others it may not exist.
            path.parent.mkdir(parents=True, exist_ok=True)
            log = path.open("ab", buffering=0)
        except OSError as error:
            sys.stderr.write(
                f"warning: {path} cannot be written ({error.strerror}); this rank prints here instead.\n"
            )
            return
        with log:
            self._former = [os.dup(standard) for standard in _STANDARD_OUTPUTS]
            print_to(log.fileno(), log.fileno())

    def turn_back(self) -> None:
        """Restores the former output."""
        if self._former:
            print_to(*self._former)
            for former in self._former:
                os.close(former)
            self._former = []


def _tell_torchrun(failure: RankFailure, error: DrivetrainError) -> None:
    """Records the error for the summary of torchrun, unless it only follows from another rank's failure."""
    from torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler

    if not failure.is_consequence:
        ErrorHandler().record_exception(error)
