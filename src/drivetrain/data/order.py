"""The order of the training samples: the samples of a weight update as a pure function of its number."""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.randomness import draw_permutation, stream_key
from drivetrain.recipe.schema import Remainder

PADDING = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOrder:
    """The order of the training samples.

    Pass p over the samples goes through the permutation that belongs to (seed, p). With `trim` and `pad`
    every epoch is one pass, cut into updates from its start; with `carry` the passes follow each other
    without a gap and updates are cut from that stream. Samples in `bad` keep their places, as padding.
    """

    seed: int
    samples: int
    global_batch: int
    updates_per_epoch: Fraction
    remainder: Remainder
    shuffle: bool
    bad: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.remainder == "carry":
            return
        updates, batch, samples = self.updates_per_epoch, self.global_batch, self.samples
        assert updates.denominator == 1, "only carry has epochs that end inside an update"
        used = updates * batch
        assert used <= samples if self.remainder == "trim" else used - batch < samples, (
            "the epoch has empty updates"
        )

    def epoch_of(self, update: int) -> int:
        """The epoch, from 0, in which an update begins."""
        return floor(update / self.updates_per_epoch)

    def real_samples(self, update: int) -> int:
        """How many samples of an update are no padding; 1 where all are, so that it can be divided by."""
        if self.bad:
            return max(1, int((self.indices(update) != PADDING).sum()))
        if self.remainder != "pad":
            return self.global_batch
        start = update % self.updates_per_epoch.numerator * self.global_batch
        return min(self.global_batch, self.samples - start)

    def samples_until(self, update: int) -> int:
        """How many samples the updates before `update` went through; bad ones count, padding does not."""
        if self.remainder != "pad":
            return update * self.global_batch
        epochs, updates = divmod(update, self.updates_per_epoch.numerator)
        per_epoch = min(self.updates_per_epoch.numerator * self.global_batch, self.samples)
        return epochs * per_epoch + min(updates * self.global_batch, self.samples)

    def indices(self, update: int) -> NDArray[np.int64]:
        """The samples of one update, in order; -1 marks padding."""
        return self.rows(update, update + 1).reshape(-1)

    def rows(self, first: int, stop: int) -> NDArray[np.int64]:
        """The samples of updates first..stop-1, one row each."""
        passes, positions = self._places(np.arange(first, stop, dtype=np.int64)[:, np.newaxis])
        samples = np.where(positions < self.samples, positions, PADDING)
        if self.shuffle:
            for number in range(int(passes[0, 0]), int(passes[-1, -1]) + 1):
                here = (passes == number) & (samples != PADDING)
                samples[here] = _permutation(self.seed, number, self.samples)[positions[here]]
        if self.bad:
            samples[np.isin(samples, self.bad)] = PADDING
        return samples

    def passes(self, first: int, stop: int) -> NDArray[np.int64]:
        """How many passes over the samples lie before each slot of updates first..stop-1, one row each."""
        return self._places(np.arange(first, stop, dtype=np.int64)[:, np.newaxis])[0]

    def usable(self) -> NDArray[np.int64]:
        """All samples that can be trained on, in order."""
        return np.setdiff1d(np.arange(self.samples, dtype=np.int64), np.array(self.bad, dtype=np.int64))

    def _places(self, updates: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For every slot of every update: the pass over the samples, and the position in it."""
        slots = np.arange(self.global_batch, dtype=np.int64)
        if self.remainder == "carry":
            places = updates * self.global_batch + slots
            return places // self.samples, places % self.samples
        epochs, updates_into_epoch = np.divmod(updates, self.updates_per_epoch.numerator)
        positions = updates_into_epoch * self.global_batch + slots
        return np.broadcast_to(epochs, positions.shape), positions


@lru_cache(maxsize=2)
def _permutation(seed: int, number: int, samples: int) -> NDArray[np.int64]:
    permutation = draw_permutation(stream_key(seed, "shuffle", number), samples)
    permutation.setflags(write=False)
    return permutation


def micro_batch_slice(accumulation_index: int, *, replica: int, replicas: int, micro: int) -> slice:
    """The samples of an update that one replica's micro-batch takes."""
    first = (accumulation_index * replicas + replica) * micro
    return slice(first, first + micro)


def replica_slots(*, global_batch: int, replica: int, replicas: int, micro: int) -> NDArray[np.int64]:
    """The slots of an update that one replica takes, one row per micro-batch."""
    return np.arange(global_batch, dtype=np.int64).reshape(-1, replicas, micro)[:, replica]


def without_padding(samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """The samples to fetch: padding repeats the first real sample of its update, and gets no weight."""
    is_padding = samples == PADDING
    first_real = np.take_along_axis(samples, is_padding.argmin(axis=-1, keepdims=True), axis=-1)
    # An update of padding alone fetches sample 0.
    return np.where(is_padding, np.maximum(first_real, 0), samples)
