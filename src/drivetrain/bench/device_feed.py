"""A feed whose batches lie on the device ready for the model: training without any work on data."""

from collections.abc import Iterator

import numpy as np
import torch

from drivetrain.data.feeds.micro_batch import MicroBatch, Parcel
from drivetrain.data.order import SampleOrder, replica_slots
from drivetrain.data.preprocess import Preparation, channels_last_view
from drivetrain.data.source import Source

__all__ = ["DeviceFeed"]


class DeviceFeed:
    """The first samples of a source, prepared once without chance; every micro-batch shows the same ones."""

    def __init__(
        self,
        source: Source,
        *,
        order: SampleOrder,
        preprocess: Preparation,
        micro_batch_size: int,
        device: torch.device,
        replica: int = 0,
        replicas: int = 1,
    ) -> None:
        self.data_seconds = 0.0
        self.transfer_seconds = 0.0
        stored = source.fetch(np.arange(micro_batch_size, dtype=np.int64) % len(source))
        images, labels = (torch.from_numpy(part).to(device) for part in stored)
        images, labels = preprocess.both(channels_last_view(images), labels)
        slots = replica_slots(
            global_batch=order.global_batch, replica=replica, replicas=replicas, micro=micro_batch_size
        )
        self._batches = [
            MicroBatch(images, labels, None, own) for own in torch.from_numpy(slots.copy()).to(device)
        ]

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:  # noqa: ARG002
        """As many as any update has; they are the same in all of them."""
        return iter(self._batches)

    def collect(self, update: int) -> Parcel:  # noqa: ARG002
        """Nothing has to be brought: the batches lie where they are used."""
        return Parcel.of(())

    def unpack(self, parcel: Parcel) -> Iterator[MicroBatch]:  # noqa: ARG002
        """The same micro-batches again."""
        return iter(self._batches)

    def close(self) -> None:
        """Lets go of the device's memory."""
        self._batches = []
