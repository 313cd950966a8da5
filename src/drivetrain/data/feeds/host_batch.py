"""Batches prepared on the host, and the form in which they are transferred to the device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.chain import AnyAugmentation, Drawn, fetch_for_training
from drivetrain.data.preprocess import Preparation, channels_last_view
from drivetrain.data.source import Source, require_finite_fetch, require_labels
from drivetrain.devices.compilation import Compilable

__all__ = [
    "BatchPreparation",
    "HostBatch",
    "HostPreparation",
    "PrepareBatch",
    "Samples",
    "Travel",
    "compilable_preparation",
]

PrepareBatch = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], tuple[Tensor, Tensor]]
Travel = Literal["preprocessed", "float32", "as stored"]
Samples = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class BatchPreparation:
    """Augments and preprocesses batches; batches without draws (validation) are only preprocessed."""

    preprocess: Preparation
    augmentation: AnyAugmentation | None

    def run(
        self, images: Tensor, labels: Tensor, draws: Tensor | None, mix: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if self.augmentation is None or draws is None:
            return self.preprocess.both(images, labels)
        return self.augmentation.prepare(images, labels, preprocess=self.preprocess, draws=draws, mix=mix)


def compilable_preparation(
    preprocess: Preparation, augmentation: AnyAugmentation | None
) -> Compilable[[Tensor, Tensor, Tensor | None, Tensor | None], tuple[Tensor, Tensor]]:
    """Preparation of (images, labels, draws, mix) for model and loss, which torch.compile can compile."""
    return Compilable(BatchPreparation(preprocess, augmentation).run, what="augmentation", whole=True)


@dataclass(frozen=True, slots=True)
class HostBatch:
    """A batch on its way to the device; images are (samples, height, width, channels).

    `draws` are the random numbers of images that are still to be augmented. With `mix`, the labels of the
    mixup partners (and their images, if still to be mixed) follow the samples' own.
    """

    images: Tensor
    labels: Tensor
    weights: Tensor | None = None
    draws: Tensor | None = None
    mix: Tensor | None = None

    def pin_memory(self) -> Self:
        """The same batch in page-locked memory; the DataLoader calls this method by its name."""
        return self._with_all(Tensor.pin_memory)

    def to(self, device: torch.device) -> Self:
        """The same batch on the device; the host does not wait for the copy."""
        return self._with_all(lambda part: part.to(device, non_blocking=True))

    @property
    def parts(self) -> tuple[Tensor | None, ...]:
        """All tensors, in a fixed order."""
        return self.images, self.labels, self.weights, self.draws, self.mix

    @classmethod
    def of_parts(cls, parts: Sequence[Tensor | None]) -> Self:
        """The batch whose `parts` these are."""
        images, labels, *optional = parts
        assert images is not None
        assert labels is not None
        return cls(images, labels, *optional)

    def _with_all(self, change: Callable[[Tensor], Tensor]) -> Self:
        optional = (self.weights, self.draws, self.mix)
        changed = (None if part is None else change(part) for part in optional)
        return type(self)(change(self.images), change(self.labels), *changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPreparation:
    """Fetches samples and converts them to the form in which they are transferred to the device."""

    source: Source
    preprocess: Preparation
    travel: Travel
    augmentation: AnyAugmentation | None = None

    def __call__(self, indices: NDArray[np.int64]) -> HostBatch:
        """Prepares samples without augmentation, for validation and prediction."""
        return self._batch(self.source.fetch(indices), indices=indices)

    def for_training(
        self,
        indices: NDArray[np.int64],
        *,
        passes: NDArray[np.int64],
        usable: NDArray[np.int64],
        weights: NDArray[np.float32] | None = None,
    ) -> HostBatch:
        """Prepares samples with augmentation; the random numbers depend on their pass over the data."""
        if self.augmentation is None:
            samples = fetch_for_training(self.source, indices, passes=passes)
            return self._batch(samples, indices=indices, weights=weights)
        drawn = self.augmentation.draw(indices, passes=passes, usable=usable)
        samples = fetch_for_training(self.source, drawn.indices, passes=drawn.passes)
        return self._batch(samples, indices=drawn.indices, weights=weights, drawn=drawn)

    def on_device(self, batch: HostBatch, *, prepare: PrepareBatch | None = None) -> tuple[Tensor, Tensor]:
        """Images and labels, after the preparation that was left to the device.

        `prepare` replaces the default preparation, for example by a compiled one.
        """
        if self.travel == "preprocessed":
            return channels_last_view(batch.images), batch.labels
        return (prepare or self._prepare)(
            channels_last_view(batch.images), batch.labels, batch.draws, batch.mix
        )

    def _batch(
        self,
        samples: Samples,
        *,
        indices: NDArray[np.int64],
        weights: NDArray[np.float32] | None = None,
        drawn: Drawn | None = None,
    ) -> HostBatch:
        require_finite_fetch(samples[0], source=self.source, indices=indices)
        spec = self.preprocess.spec
        require_labels(samples[1], num_classes=spec.num_classes, may_ignore=spec.ignores_pixels)
        images, labels = torch.from_numpy(samples[0]), torch.from_numpy(samples[1])
        draws, mix = (None, None) if drawn is None else (_tensor(drawn.values), _tensor(drawn.mix))
        if self.travel == "preprocessed":
            prepared, labels = self._prepare(channels_last_view(images), labels, draws, mix)
            images, draws = prepared.permute(0, 2, 3, 1), None
        elif self.travel == "float32":
            images = images.to(torch.float32)
        return HostBatch(images, labels, _tensor(weights), draws, mix)

    @property
    def _prepare(self) -> PrepareBatch:
        return BatchPreparation(self.preprocess, self.augmentation).run


def _tensor(values: NDArray[np.float32] | None) -> Tensor | None:
    return None if values is None else torch.from_numpy(values)
