"""The batches of `fit` as the training program takes them: rows of resident arrays, or samples themselves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.data.feeds.micro_batch import MicroBatch, Parcel
from drivetrain.data.order import SampleOrder
from drivetrain.keras_fit.lowering import as_torch_input
from drivetrain.passes.update_batches import UpdateBatches

__all__ = ["Batch", "FitBatches", "FitFeed", "Samples", "order_of", "packed_labels"]

# Labels are sent as float32, which has every whole number up to here.
_LARGEST_WHOLE = 2**24
# Samples stay on the device if they take at most this share of its free memory.
_RESIDENT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples as Keras has them, and their packed labels: the label, then the weight of the sample."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one update: rows of the arrays that the session holds, or the samples themselves."""

    rows: NDArray[np.int64] | None = None
    samples: Samples | None = None

    def __len__(self) -> int:
        there = self.rows if self.rows is not None else self.samples
        assert there is not None
        return len(there)


def packed_labels(labels: Tensor, weights: Tensor | None) -> Tensor:
    """Labels as rows of float32, with the weight of each sample behind them."""
    flat = labels.reshape(len(labels), -1)
    if not flat.is_floating_point() and flat.numel() and int(flat.abs().max()) > _LARGEST_WHOLE:
        raise BadInputError(
            f"The labels have whole numbers above {_LARGEST_WHOLE}, which float32 cannot tell apart; give "
            "classes from 0 on."
        )
    column = torch.ones(len(flat), 1) if weights is None else weights.reshape(len(flat), 1).float()
    return torch.cat([flat.float(), column], dim=1)


def order_of(batch: int) -> SampleOrder:
    """An order that only says how large a batch is: `FitBatches` knows the samples."""
    return SampleOrder(
        seed=0,
        samples=batch,
        global_batch=batch,
        updates_per_epoch=Fraction(1),
        remainder="trim",
        shuffle=False,
    )


class FitFeed:
    """Feeds one replica with the batches of a block of updates, which are handed over before it runs.

    With `pads` the last micro-batch of a short batch is filled up with samples of weight 0, since stages on
    several ranks send values of one shape.
    """

    def __init__(
        self,
        *,
        batch: int,
        micro: int,
        replica: int,
        replicas: int,
        device: torch.device,
        channels_last: bool,
        pads: bool,
    ) -> None:
        self.data_seconds = 0.0
        self.transfer_seconds = 0.0
        self.batch, self.micro = batch, micro
        self._device, self._channels_last, self._pads = device, channels_last, pads
        self._own = np.arange(batch, dtype=np.int64).reshape(-1, replicas, micro)[:, replica]
        self._arrays: Samples | None = None
        self._batches: dict[int, Batch] = {}
        self._first = 0
        self._room = 0

    def hold(self, arrays: Samples | None, *, free_bytes: int) -> None:
        """Takes the arrays whose rows later batches name; on the device if they fit."""
        fits = arrays is not None and arrays.inputs.nbytes <= _RESIDENT_SHARE * free_bytes
        if arrays is not None and fits and self._device.type != "cpu":
            arrays = Samples(arrays.inputs.to(self._device), arrays.labels.to(self._device))
        self._arrays = arrays

    def load(self, first: int, batches: Sequence[Batch]) -> None:
        """Takes the batches of updates from `first` on."""
        self._first, self._batches = first, dict(enumerate(batches, start=first))
        self._room = len(batches) * self.batch

    def size(self, update: int) -> int:
        """The samples of an update."""
        return len(self._batches[update])

    def own_places(self, update: int) -> NDArray[np.int64]:
        """The places in the batch of this replica's samples, without padding."""
        own = self._own.reshape(-1)
        return own[own < self.size(update)]

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:
        """The micro-batches of an update."""
        yield from self.unpack(self.collect(update))

    def collect(self, update: int) -> Parcel:
        """The update's samples of this replica, as rows or by themselves, and their places."""
        places = self.own_places(update)
        slots = self._padded_slots(places) if self._pads else places
        is_real = slots < self.size(update)
        taken = np.where(is_real, slots, 0)
        kept = np.where(is_real, slots + (update - self._first) * self.batch, self._room)
        batch, arrays = self._batches[update], self._arrays
        labels_at = [self._to(torch.from_numpy(part)) for part in (slots, kept, is_real.astype(np.float32))]
        chosen = torch.from_numpy(taken if batch.rows is None else batch.rows[taken])
        samples = arrays if batch.samples is None else batch.samples
        assert samples is not None
        if batch.samples is None and samples.inputs.device.type == self._device.type:
            return Parcel.of([self._to(chosen), None, None, *labels_at])
        return Parcel.of(
            [None, self._to(samples.inputs[chosen]), self._to(samples.labels[chosen]), *labels_at]
        )

    def unpack(self, parcel: Parcel) -> Iterator[MicroBatch]:
        """The parcel's micro-batches, all whole but the last."""
        rows, inputs, labels, slots, kept, is_real = parcel.parts
        assert slots is not None
        assert kept is not None
        assert is_real is not None
        if rows is not None:
            assert self._arrays is not None
            inputs = self._arrays.inputs.index_select(0, rows)
            labels = self._arrays.labels.index_select(0, rows)
        assert inputs is not None
        assert labels is not None
        images = as_torch_input(inputs, channels_last=self._channels_last)
        weighted = torch.cat([labels[:, :-1], labels[:, -1:] * is_real[:, None], kept[:, None].float()], 1)
        for parts in zip(*(torch.split(part, self.micro) for part in (images, weighted, slots)), strict=True):
            own_images, own_labels, own_slots = parts
            if len(own_slots):
                yield MicroBatch(own_images, own_labels, None, own_slots)

    def close(self) -> None:
        """Releases the samples."""
        self._arrays, self._batches = None, {}

    def _padded_slots(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places with those of padding, so that every micro-batch that has a sample is whole."""
        whole = -(-len(places) // self.micro) * self.micro
        return self._own.reshape(-1)[:whole]

    def _to(self, tensor: Tensor) -> Tensor:
        if self._device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)


class FitBatches(UpdateBatches):
    """The micro-batches of a batch, whose size is that of the samples that the feed has for it."""

    def share(self, update: int) -> float:
        return 1.0 / self._size(update)

    def numbers(self, update: int) -> list[int]:
        own = [index * self.replicas + self.replica for index in range(self.accumulation)]
        return [number for number in own if number * self.micro < self._size(update)]

    def _size(self, update: int) -> int:
        assert isinstance(self.feed, FitFeed)
        return self.feed.size(update)
