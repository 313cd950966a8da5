"""What a rank that torchrun, SLURM or MPI started does around its work."""

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
    """Inside, `keep_log` works; an error leaves as one sentence that names rank and host, and a bug shows its
    traceback before."""
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
    """Where this process prints: where its launcher meant it to, or in a log."""

    def __init__(self) -> None:
        self._former: list[int] = []

    @property
    def is_turned(self) -> bool:
        return bool(self._former)

    def turn_to(self, path: Path) -> None:
        """Prints to a file from now on; where none can be made, all stays as it is."""
        try:
            # Only rank 0 needs the run directory, so on other hosts it may not be there.
            path.parent.mkdir(parents=True, exist_ok=True)
            log = path.open("ab", buffering=0)
        except OSError as error:
            sys.stderr.write(
                f"warning: {path} cannot be written ({error.strerror}); this rank prints here.\n"
            )
            return
        with log:
            self._former = [os.dup(standard) for standard in _STANDARD_OUTPUTS]
            print_to(log.fileno(), log.fileno())

    def turn_back(self) -> None:
        """Prints where it printed before."""
        if self._former:
            print_to(*self._former)
            for former in self._former:
                os.close(former)
            self._former = []


def _tell_torchrun(failure: RankFailure, error: DrivetrainError) -> None:
    """What torchrun prints last is then this error, unless it is but the consequence of another one."""
    from torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler

    if not failure.is_consequence:
        ErrorHandler().record_exception(error)
