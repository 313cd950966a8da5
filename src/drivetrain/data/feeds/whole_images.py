"""Feeds whole images of any sizes, one at a time and each once: for measuring at their own resolution."""

from collections.abc import Iterator

import torch

from drivetrain.data.dense_normalise import normalise_dense
from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.preprocess import channels_last_view
from drivetrain.data.source import DataSpec, require_labels


class WholeImageFeed:
    """Can be gone through any number of times; a batch's slot is its image's index."""

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
            require_labels(mask[None], num_classes=self._spec.num_classes)
            stored = channels_last_view(torch.from_numpy(image.copy())[None].to(self._device))
            labels = torch.from_numpy(mask.copy())[None].to(self._device)
            slots = torch.tensor([index], device=self._device)
            yield MicroBatch(normalise_dense(stored, self._spec), labels, None, slots)
