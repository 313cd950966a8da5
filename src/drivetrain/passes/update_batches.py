"""The micro-batches of an update that one replica runs."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.feeds.feed import Feed, MicroBatch
from drivetrain.data.order import PADDING, SampleOrder

__all__ = ["NumberedBatch", "UpdateBatches"]


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """A micro-batch and its number among all of the global batch."""

    number: int
    batch: MicroBatch


@dataclass(slots=True, kw_only=True)
class UpdateBatches:
    """The micro-batches of an update on this replica, and the weight of a sample in the mean loss."""

    feed: Feed
    order: SampleOrder
    micro: int
    replica: int = 0
    replicas: int = 1
    norm_group_size: int = 1

    @property
    def accumulation(self) -> int:
        """How many micro-batches a whole update has on one replica."""
        return -(-self.order.global_batch // (self.micro * self.replicas))

    def share(self, update: int) -> float:
        """What one sample counts in the mean over the global batch."""
        return 1.0 / self.order.real_samples(update)

    def numbers(self, update: int) -> list[int]:
        """The micro-batches to run, by their numbers."""
        own = [index * self.replicas + self.replica for index in range(self.accumulation)]
        if self.order.real_samples(update) == self.order.global_batch:
            return own
        samples = self.order.indices(update)
        return [number for number in own if not self._is_empty(samples, number)]

    def of(self, update: int) -> Iterator[NumberedBatch]:
        """The micro-batches to run, one after the other as the feed brings them."""
        yield from self.numbered(self.feed.micro_batches(update), wanted=self.numbers(update))

    def numbered(self, batches: Iterable[MicroBatch], *, wanted: Collection[int]) -> Iterator[NumberedBatch]:
        """Those of all micro-batches of this replica, in their order, whose numbers are wanted."""
        for index, batch in enumerate(batches):
            number = index * self.replicas + self.replica
            if number in wanted:
                yield NumberedBatch(number, batch)

    def _is_empty(self, samples: NDArray[np.int64], number: int) -> bool:
        """Whether a micro-batch, and those normalised together with it, hold only padding.

        It is then skipped: the gradient of padding is 0, but batch norm would count its statistics. All
        members of a batch-norm group must skip it together.
        """
        first = number // self.norm_group_size * self.norm_group_size
        together = samples[first * self.micro : (first + self.norm_group_size) * self.micro]
        return bool((together == PADDING).all())
