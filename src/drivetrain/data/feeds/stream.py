"""Streams a data set: loader workers prepare the next updates while the device computes."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.chain import AnyAugmentation
from drivetrain.data.feeds.host_batch import HostBatch, HostPreparation, Travel, compilable_preparation
from drivetrain.data.feeds.loader import BATCHES_AHEAD_PER_WORKER, BatchLoader, HostBatches
from drivetrain.data.feeds.micro_batch import MicroBatch, Parcel, make_micro_batch
from drivetrain.data.order import PADDING, SampleOrder, micro_batch_slice, replica_slots, without_padding
from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import Source

__all__ = ["CopiesAside", "StreamFeed"]


class CopiesAside:
    """Copies batches to a device on a separate stream, so that copies overlap with computation.

    The host does not wait for a copy. It runs some updates ahead of the device, and so do the copies: while
    one update computes, the batches of the next ones are being copied or are already there.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = None if device.type == "cpu" else torch.Stream(device)

    def bring(self, batch: HostBatch) -> HostBatch:
        """Copies the batch; work queued on the current stream from now on waits for the copy."""
        if self._stream is None:
            return batch.to(self._device)
        with self._stream:
            brought = batch.to(self._device)
        computing = torch.accelerator.current_stream(self._device)
        computing.wait_stream(self._stream)
        for part in brought.parts:
            if part is not None:
                _keep_until_used(part, computing)
        return brought


def _keep_until_used(part: Tensor, computing: torch.Stream) -> None:
    """Keeps a tensor's memory from being reused before the computing stream has read it."""
    # torch's caching allocator ties memory to the stream that allocated it, here the copying stream. Once the
    # tensor is freed on the host, the next copy could overwrite it while the update still reads it.
    part.record_stream(computing)


@dataclass(frozen=True, kw_only=True)
class _MicroBatches(HostBatches):
    """One replica's micro-batches, named by (update, accumulation index)."""

    preparation: HostPreparation
    order: SampleOrder
    usable: NDArray[np.int64]
    micro: int
    replica: int
    replicas: int

    def prepare(self, coordinate: tuple[int, int]) -> HostBatch:
        update, accumulation_index = coordinate
        samples = self.order.indices(update)
        here = micro_batch_slice(
            accumulation_index, replica=self.replica, replicas=self.replicas, micro=self.micro
        )
        weights = (samples[here] != PADDING).astype(np.float32) if PADDING in samples else None
        return self.preparation.for_training(
            without_padding(samples)[here],
            passes=self.order.passes(update, update + 1)[0, here],
            usable=self.usable,
            weights=weights,
        )


class StreamFeed:
    """Feeds one replica from a loader that runs ahead; asked for any other update, it restarts there."""

    def __init__(
        self,
        source: Source,
        *,
        order: SampleOrder,
        preprocess: Preparation,
        micro_batch_size: int,
        device: torch.device,
        num_workers: int,
        preprocess_on_device: bool = False,
        eight_bit_transfer: bool = False,
        augmentation: AnyAugmentation | None = None,
        replica: int = 0,
        replicas: int = 1,
    ) -> None:
        self.data_seconds = 0.0
        self.transfer_seconds = 0.0
        self._preparation = HostPreparation(
            source=source,
            preprocess=preprocess,
            travel=_travel(preprocess_on_device=preprocess_on_device, eight_bit_transfer=eight_bit_transfer),
            augmentation=augmentation,
        )
        self.prepare = compilable_preparation(preprocess, augmentation)
        self._batches = _MicroBatches(
            preparation=self._preparation,
            order=order,
            usable=order.usable(),
            micro=micro_batch_size,
            replica=replica,
            replicas=replicas,
        )
        slots = replica_slots(
            global_batch=order.global_batch, replica=replica, replicas=replicas, micro=micro_batch_size
        )
        self._slots = torch.from_numpy(slots).to(device).unbind(0)
        self._device = device
        self._num_workers = num_workers
        self._copies = CopiesAside(device)
        self._loader: BatchLoader | None = None
        self._next = (0, 0)

    @property
    def batches_ahead(self) -> int:
        """What all loader workers together prepare in advance."""
        return self._num_workers * BATCHES_AHEAD_PER_WORKER

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:
        """The micro-batches of an update as they arrive."""
        for index in range(len(self._slots)):
            yield self._prepared(self._arrived(update, index), index)

    def collect(self, update: int) -> Parcel:
        """Copies all batches of an update to the device, in the form in which they are transferred."""
        parts = [part for index in range(len(self._slots)) for part in self._arrived(update, index).parts]
        return Parcel.of(parts)

    def unpack(self, parcel: Parcel) -> Iterator[MicroBatch]:
        """Prepares the micro-batches of a collected update on the device."""
        parts = parcel.parts
        per_batch = len(parts) // len(self._slots)
        for index in range(len(self._slots)):
            own = parts[index * per_batch : (index + 1) * per_batch]
            yield self._prepared(HostBatch.of_parts(own), index)

    def _prepared(self, batch: HostBatch, index: int) -> MicroBatch:
        images, labels = self._preparation.on_device(batch, prepare=self.prepare)
        return make_micro_batch(
            images, labels=labels, weights=batch.weights, slots=self._slots[index], mix=batch.mix
        )

    def close(self) -> None:
        """Ends the loader workers."""
        if self._loader is not None:
            self._loader.close()
            self._loader = None

    def _arrived(self, update: int, index: int) -> HostBatch:
        started = perf_counter()
        if self._loader is None or self._next != (update, index):
            self.close()
            self._loader = self._open_at(update, index)
        batch = self._loader.next()
        self._next = (update, index + 1) if index + 1 < len(self._slots) else (update + 1, 0)
        arrived = perf_counter()
        self.data_seconds += arrived - started
        batch = self._copies.bring(batch)
        self.transfer_seconds += perf_counter() - arrived
        return batch

    def _open_at(self, update: int, index: int) -> BatchLoader:
        first = update * len(self._slots) + index
        coordinates = (divmod(number, len(self._slots)) for number in count(first))
        return BatchLoader(
            self._batches, coordinates=coordinates, num_workers=self._num_workers, device=self._device
        )


def _travel(*, preprocess_on_device: bool, eight_bit_transfer: bool) -> Travel:
    if not preprocess_on_device:
        return "preprocessed"
    return "as stored" if eight_bit_transfer else "float32"
