"""Prepares batches on the host, in loader workers or in the training process itself."""

import atexit
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from drivetrain.core.errors import BadInputError, DrivetrainError, RunFailedError
from drivetrain.data.feeds.host_batch import HostBatch
from drivetrain.ranks.parent_watch import die_with_parent_thread
from drivetrain.ranks.threads import cores

# More batches ahead absorb slow samples, but each takes host memory.
BATCHES_AHEAD_PER_WORKER = 4
# Each worker is a process with its own memory, so the default is modest; --num-workers raises it.
_MOST_WORKERS_BY_DEFAULT = 4
_MOST_WORKERS_PER_CORE = 16
_HANDLED_BY_WORKERS = (signal.SIGINT, signal.SIGTERM)


class LoaderTracebackError(Exception):
    """The traceback of an error in a loader worker, as the cause of what the training process raises."""


@dataclass(frozen=True, slots=True)
class LoaderFailure:
    """Sent from a loader worker in place of a batch that could not be prepared."""

    summary: str
    traceback_text: str

    def as_error(self) -> RunFailedError:
        """The error for the user, with the original traceback as its cause."""
        error = RunFailedError(f"Samples could not be prepared: {self.summary}")
        error.__cause__ = LoaderTracebackError(self.traceback_text)
        return error


class HostBatches(Dataset[HostBatch | LoaderFailure]):
    """Batches by coordinate, for the DataLoader; an error is returned as a LoaderFailure, not raised."""

    def prepare(self, coordinate: tuple[int, int]) -> HostBatch:
        """The batch at a coordinate."""
        raise NotImplementedError

    def __getitem__(self, coordinate: tuple[int, int]) -> HostBatch | LoaderFailure:
        try:
            return self.prepare(coordinate)
        except DrivetrainError as error:
            return LoaderFailure(str(error), traceback.format_exc())
        except Exception as error:
            return LoaderFailure(f"{type(error).__name__}: {error}", traceback.format_exc())


class BatchLoader:
    """Prepares batches in the order of their coordinates, ahead of the consumer where there are workers.

    Loader workers end with the thread that created the loader, so no other thread may use it after that.
    """

    def __init__(
        self,
        batches: HostBatches,
        *,
        coordinates: Iterable[tuple[int, int]],
        num_workers: int,
        device: torch.device,
    ) -> None:
        loader = DataLoader(
            batches,
            batch_size=None,
            sampler=coordinates,
            num_workers=num_workers,
            prefetch_factor=BATCHES_AHEAD_PER_WORKER if num_workers else None,
            pin_memory=device.type != "cpu",
            worker_init_fn=partial(_begin_worker, parent_pid=os.getpid()),
            # A rank is a spawned process, so by default its workers would be spawned too and import it all.
            multiprocessing_context="fork" if num_workers and sys.platform == "linux" else None,
            # Without its own generator, the DataLoader draws from the global one, which is the model's.
            generator=torch.Generator(),
        )
        # torch's own handler would end a worker that SIGTERM reaches before its _begin_worker.
        with _signals_held_back():
            self._iterator: Iterator[Any] | None = iter(loader)
        # Python ends child processes with SIGTERM when it exits, but loader workers ignore SIGTERM.
        atexit.register(self.close)

    def next(self) -> HostBatch:
        """Returns the next batch, or raises the error that prevented it."""
        assert self._iterator is not None, "the loader is closed"
        try:
            item = next(self._iterator)
        except RuntimeError as error:
            raise RunFailedError(
                f"A loader worker died ({error}); --num-workers 0 loads without workers."
            ) from error
        if isinstance(item, LoaderFailure):
            raise item.as_error()
        assert isinstance(item, HostBatch)
        return item

    def close(self) -> None:
        """Ends the loader workers; nothing else may hold a reference to the iterator."""
        self._iterator = None
        atexit.unregister(self.close)


def default_num_workers(ranks: int = 1) -> int:
    """Default number of loader workers per rank; leaves one core for each rank."""
    return max(1, min(_MOST_WORKERS_BY_DEFAULT, (cores() - ranks) // ranks))


def check_num_workers(num_workers: int) -> None:
    """Rejects a number of loader workers that would overload the machine."""
    most = _MOST_WORKERS_PER_CORE * cores()
    if num_workers > most:
        raise BadInputError(
            f"--num-workers {num_workers} is more than the limit of {most} ({_MOST_WORKERS_PER_CORE} per CPU "
            f"core); --num-workers {default_num_workers()} works."
        )


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Blocks signals; processes started inside inherit the blocked signals and unblock them themselves."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED_BY_WORKERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _begin_worker(_worker_index: int, *, parent_pid: int) -> None:
    # torch checks for a dead parent only every 5 seconds; that long, a worker would hold what it inherited.
    die_with_parent_thread(parent_pid)
    # Signals often reach a whole process group; the training process decides what they mean, and needs its
    # workers for the update it still finishes. They end when it closes the loader or is gone.
    for number in _HANDLED_BY_WORKERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_BY_WORKERS)
    # A forked process inherits the state of the thread pool but not its threads; using it could hang.
    torch.set_num_threads(1)
