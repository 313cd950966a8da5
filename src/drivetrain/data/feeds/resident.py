"""Feeds training from a data set in device memory: an update is one gather, without a host transfer."""

from collections.abc import Iterator
from math import ceil
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.chain import AnyAugmentation
from drivetrain.data.feeds.host_batch import compilable_preparation
from drivetrain.data.feeds.micro_batch import MicroBatch, Parcel, make_micro_batch
from drivetrain.data.feeds.resident_data import ResidentData
from drivetrain.data.order import PADDING, SampleOrder, replica_slots, without_padding
from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import Source
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup

# Indices and draws move to the device in blocks: large blocks need fewer copies, small ones less memory.
_MOST_INDICES_PER_BLOCK = 2**22
_FEWEST_UPDATES_PER_BLOCK = 64


class ResidentFeed:
    """Feeds one replica from resident data; the order of many updates moves to the device at once."""

    def __init__(
        self,
        source: Source,
        *,
        order: SampleOrder,
        preprocess: Preparation,
        micro_batch_size: int,
        device: torch.device,
        augmentation: AnyAugmentation | None = None,
        replica: int = 0,
        replicas: int = 1,
        group: ReplicaGroup = ALONE,
    ) -> None:
        self.data_seconds = 0.0
        self.transfer_seconds = 0.0
        self._order = order
        self._augmentation = augmentation
        self.prepare = compilable_preparation(preprocess, augmentation)
        self._usable = order.usable()
        self._device = device
        slots = replica_slots(
            global_batch=order.global_batch, replica=replica, replicas=replicas, micro=micro_batch_size
        )
        images_per_sample = 1 if augmentation is None else augmentation.images_per_sample
        self._images_shape = (len(slots), images_per_sample * micro_batch_size, -1)
        self._samples_shape = slots.shape
        self._numbers_per_sample = 1 if augmentation is None else augmentation.numbers_per_sample
        self._slots_on_host = slots.reshape(-1)
        self._slots = torch.from_numpy(slots).to(device).unbind(0)
        self._block = range(0)
        self._rows = torch.empty(0)
        self._weights: dict[int, Tensor] = {}
        self._draws: Tensor | None = None
        self._mix: Tensor | None = None
        started = perf_counter()
        self._data = ResidentData(source, preprocess=preprocess, device=device, group=group)
        self.transfer_seconds += perf_counter() - started

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:
        """The micro-batches of an update: one gather, then views of it."""
        parcel = self.collect(update)
        started = perf_counter()
        for batch in self.unpack(parcel):
            self.data_seconds += perf_counter() - started
            yield batch
            started = perf_counter()

    def collect(self, update: int) -> Parcel:
        """Indices, random numbers and weights of the update's samples."""
        started = perf_counter()
        if update not in self._block:
            self._load_block(update)
        self.data_seconds += perf_counter() - started
        place = update - self._block.start
        draws = None if self._draws is None else self._draws[place]
        mix = None if self._mix is None else self._mix[place]
        return Parcel.of([self._rows[place], draws, mix, self._weights.get(update)])

    def unpack(self, parcel: Parcel) -> Iterator[MicroBatch]:
        """The update's micro-batches: one gather, then views of it."""
        rows, draws, mix, weights = parcel.parts
        assert rows is not None
        pixels, labels = self._data.take(rows)
        images = pixels.view(self._images_shape).unbind(0)
        labels_of = labels.view(*self._images_shape[:2], *labels.shape[1:]).unbind(0)
        for index, slots in enumerate(self._slots):
            own_mix = None if mix is None else mix[index]
            prepared = self._prepared(
                images[index],
                labels_of[index],
                draws=None if draws is None else draws[index],
                mix=own_mix,
            )
            yield make_micro_batch(
                prepared[0],
                labels=prepared[1],
                weights=None if weights is None else weights[index],
                slots=slots,
                mix=own_mix,
            )

    def close(self) -> None:
        """Releases the device memory."""
        self._block, self._rows, self._weights = range(0), torch.empty(0), {}
        self._draws = self._mix = None
        del self._data

    def _prepared(
        self, rows: Tensor, labels: Tensor, *, draws: Tensor | None, mix: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return self.prepare(self._data.as_images(rows), labels, draws, mix)

    def _load_block(self, update: int) -> None:
        """Moves sample indices and random numbers of the block that contains `update` to the device."""
        self._block = self._block_around(update)
        rows = self._order.rows(self._block.start, self._block.stop)
        self._rows = self._to_device(self._drawn(without_padding(rows)[:, self._slots_on_host]))
        self._weights = {}
        for index in np.flatnonzero((rows == PADDING).any(axis=1)).tolist():
            weights = (rows[index, self._slots_on_host] != PADDING).astype(np.float32)
            self._weights[self._block.start + index] = self._to_device(weights).view(self._samples_shape)

    def _drawn(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Moves the block's random numbers to the device; returns its samples, with mixup partners."""
        if self._augmentation is None:
            return samples
        passes = self._order.passes(self._block.start, self._block.stop)[:, self._slots_on_host]
        shape = (len(samples), *self._samples_shape)
        drawn = self._augmentation.draw(
            samples.reshape(shape), passes=passes.reshape(shape), usable=self._usable
        )
        self._draws = self._to_device(drawn.values)
        self._mix = None if drawn.mix is None else self._to_device(drawn.mix)
        return drawn.indices.reshape(len(samples), -1)

    def _block_around(self, update: int) -> range:
        """The block that contains `update`: about one epoch, within the limits above."""
        order = self._order
        longest = max(1, _MOST_INDICES_PER_BLOCK // (order.global_batch * self._numbers_per_sample))
        length = min(longest, max(_FEWEST_UPDATES_PER_BLOCK, ceil(order.updates_per_epoch)))
        first = update // length * length
        return range(first, first + length)

    def _to_device(self, values: NDArray[np.int64] | NDArray[np.float32]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        if self._device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)
