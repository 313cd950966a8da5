"""Feeds every sample exactly once and in order: batches of one size, or whole images of any sizes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from drivetrain.data.feeds.host_batch import HostBatch, HostPreparation
from drivetrain.data.feeds.loader import BatchLoader, HostBatches
from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.data.feeds.resident_data import ResidentData
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.preprocess import Preparation, channels_last_view, normalise_dense
from drivetrain.data.source import DataSpec, Source, require_labels


@dataclass(frozen=True, kw_only=True)
class _Ranges(HostBatches):
    """Batches of consecutive samples, named by (first index, end index)."""

    preparation: HostPreparation

    def prepare(self, coordinate: tuple[int, int]) -> HostBatch:
        return self.preparation(np.arange(*coordinate, dtype=np.int64))


class EvaluationFeed:
    """Iterates over all samples, any number of times; a batch's slots are its samples' source indices."""

    def __init__(
        self,
        source: Source,
        *,
        preprocess: Preparation,
        batch_size: int,
        device: torch.device,
        resident: bool,
        num_workers: int = 0,
    ) -> None:
        self._preprocess = preprocess
        self._device = device
        self._num_workers = num_workers
        self._ranges = [
            (first, min(first + batch_size, len(source))) for first in range(0, len(source), batch_size)
        ]
        self._data = ResidentData(source, preprocess=preprocess, device=device) if resident else None
        # Batches are transferred as stored and preprocessed on the device.
        self._preparation = HostPreparation(source=source, preprocess=preprocess, travel="as stored")

    def __len__(self) -> int:
        """How many batches there are."""
        return len(self._ranges)

    def __iter__(self) -> Iterator[MicroBatch]:
        return self._streamed() if self._data is None else self._resident(self._data)

    def _resident(self, data: ResidentData) -> Iterator[MicroBatch]:
        for first, stop in self._ranges:
            rows, stored_labels = data.span(first, stop)
            # A model may write into its input. Floating samples pass preprocessing without a copy, so without
            # this clone the model would overwrite the resident data.
            stored = data.as_images(rows.clone() if rows.is_floating_point() else rows)
            images, labels = self._preprocess.both(stored, stored_labels)
            yield MicroBatch(images, labels, None, self._indices(first, stop))

    def _streamed(self) -> Iterator[MicroBatch]:
        batches = _Ranges(preparation=self._preparation)
        loader = BatchLoader(
            batches, coordinates=self._ranges, num_workers=self._num_workers, device=self._device
        )
        try:
            for first, stop in self._ranges:
                batch = loader.next().to(self._device)
                images, labels = self._preparation.on_device(batch)
                yield MicroBatch(images, labels, None, self._indices(first, stop))
        finally:
            loader.close()

    def _indices(self, first: int, stop: int) -> torch.Tensor:
        return torch.arange(first, stop, device=self._device)


class WholeImageFeed:
    """Iterates over whole images, one per batch, any number of times; the slot is the image's index."""

    def __init__(self, masked: MaskedImages, *, spec: DataSpec, device: torch.device) -> None:
        self._masked = masked
        self._spec = spec
        self._device = device

    def __len__(self) -> int:
        """How many batches there are."""
        return len(self._masked)

    def __iter__(self) -> Iterator[MicroBatch]:
        for index in range(len(self._masked)):
            image, mask = self._masked.whole(index)
            spec = self._spec
            require_labels(mask[None], num_classes=spec.num_classes, may_ignore=spec.ignores_pixels)
            stored = channels_last_view(torch.from_numpy(image.copy())[None].to(self._device))
            labels = torch.from_numpy(mask.copy())[None].to(self._device)
            slots = torch.tensor([index], device=self._device)
            yield MicroBatch(normalise_dense(stored, self._spec), labels, None, slots)
