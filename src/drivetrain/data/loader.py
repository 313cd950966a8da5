"""Batches prepared on the host, by loader workers or by the training process itself."""

import atexit
import os
import signal
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from drivetrain.data.preprocess import Preprocess, channels_last_view
from drivetrain.data.source import Source, require_labels
from drivetrain.errors import DrivetrainError, RunFailedError

Travel = Literal["preprocessed", "float32", "as stored"]

_BATCHES_AHEAD_PER_WORKER = 4
_MOST_WORKERS_BY_DEFAULT = 4
_SECONDS_TO_LIVE_AFTER_SIGTERM = 60


class LoaderTracebackError(Exception):
    """The traceback of an error in a loader worker, as the cause of what the training process raises."""


@dataclass(frozen=True, slots=True)
class HostBatch:
    """A batch on its way to the device; images are (samples, height, width, channels)."""

    images: Tensor
    labels: Tensor
    weights: Tensor | None = None

    def pin_memory(self) -> Self:
        """The same batch where the device can fetch it by itself; the DataLoader calls this."""
        weights = None if self.weights is None else self.weights.pin_memory()
        return type(self)(self.images.pin_memory(), self.labels.pin_memory(), weights)

    def to(self, device: torch.device) -> Self:
        """The same batch on the device; the host does not wait for the copy."""
        weights = None if self.weights is None else self.weights.to(device, non_blocking=True)
        images, labels = (part.to(device, non_blocking=True) for part in (self.images, self.labels))
        return type(self)(images, labels, weights)


@dataclass(frozen=True, slots=True)
class LoaderFailure:
    """What travels instead of a batch when preparing it failed."""

    summary: str
    traceback_text: str

    def as_error(self) -> RunFailedError:
        """The error for the user, with the original traceback as its cause."""
        error = RunFailedError(f"Samples could not be prepared: {self.summary}")
        error.__cause__ = LoaderTracebackError(self.traceback_text)
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPreparation:
    """Fetches samples and brings them into the form in which they travel to the device."""

    source: Source
    preprocess: Preprocess
    travel: Travel

    def __call__(
        self, indices: NDArray[np.int64], *, weights: NDArray[np.float32] | None = None
    ) -> HostBatch:
        images, labels = self.source.fetch(indices)
        require_labels(labels, num_classes=self.preprocess.spec.num_classes)
        return HostBatch(
            images=self._travelling(torch.from_numpy(images)),
            labels=torch.from_numpy(labels),
            weights=None if weights is None else torch.from_numpy(weights),
        )

    def on_device(self, images: Tensor) -> Tensor:
        """What the device still has to do to the images that arrived."""
        images = channels_last_view(images)
        return images if self.travel == "preprocessed" else self.preprocess(images)

    def _travelling(self, images: Tensor) -> Tensor:
        if self.travel == "preprocessed":
            return self.preprocess(channels_last_view(images)).permute(0, 2, 3, 1)
        return images.to(torch.float32) if self.travel == "float32" else images


class HostBatches(Dataset[HostBatch | LoaderFailure]):
    """Batches by coordinate, for the DataLoader; an error is a result like any other."""

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
    """Prepares batches in the order of their coordinates, ahead of the consumer where there are workers."""

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
            prefetch_factor=_BATCHES_AHEAD_PER_WORKER if num_workers else None,
            pin_memory=device.type != "cpu",
            worker_init_fn=_begin_worker,
            # Without one of its own the loader would draw from torch's generator, which belongs to the model.
            generator=torch.Generator(),
        )
        self._iterator: Iterator[Any] | None = iter(loader)
        # Python ends child processes by SIGTERM when it exits, but these take their time over one.
        atexit.register(self.close)

    def next(self) -> HostBatch:
        """The next batch, or the error that stood in its way."""
        assert self._iterator is not None, "the loader is closed"
        try:
            item = next(self._iterator)
        except RuntimeError as error:
            raise RunFailedError(f"A loader worker ended ({error}); --num-workers 0 does without.") from error
        if isinstance(item, LoaderFailure):
            raise item.as_error()
        assert isinstance(item, HostBatch)
        return item

    def close(self) -> None:
        """Ends the loader workers, whose iterator must have no other owner."""
        self._iterator = None
        atexit.unregister(self.close)


def default_num_workers() -> int:
    """Loader workers when the user names no number; a core stays free for training."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST_WORKERS_BY_DEFAULT, cores - 1))


def _begin_worker(_worker_index: int) -> None:
    # Signals often reach a whole process group; the training process decides what they mean, and needs its
    # workers for the update it still finishes. They end when it closes the loader or is gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_later)
    # A forked process must not enter the thread pool it inherited: its threads do not exist here.
    torch.set_num_threads(1)


def _end_later(_signal: int, _frame: object) -> None:
    signal.alarm(_SECONDS_TO_LIVE_AFTER_SIGTERM)
