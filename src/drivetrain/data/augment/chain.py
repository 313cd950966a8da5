"""Chains augmentation techniques, for images or for images with masks, and draws their random numbers."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.mixup import Mixup, mix_images
from drivetrain.data.augment.technique import DenseTechnique, Technique
from drivetrain.data.preprocess import DensePreprocess, Preparation
from drivetrain.data.source import AugmentingSource, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The random numbers of an augmentation for batches of samples; leading axes enumerate the batches.

    With mixup, each batch lists its samples first and then their mixup partners, so `indices`, `passes` and
    `values` have twice as many entries per batch as `mix`.
    """

    indices: NDArray[np.int64]
    passes: NDArray[np.int64]
    values: NDArray[np.float32]
    mix: NDArray[np.float32] | None


class AnyAugmentation(Protocol):
    """The interface that feeds need of an augmentation, whatever the task."""

    @property
    def images_per_sample(self) -> int: ...

    @property
    def numbers_per_sample(self) -> int: ...

    def draw(
        self, indices: NDArray[np.int64], *, passes: NDArray[np.int64], usable: NDArray[np.int64]
    ) -> Drawn: ...

    def prepare(
        self, images: Tensor, labels: Tensor, *, preprocess: Preparation, draws: Tensor, mix: Tensor | None
    ) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """Augments training images; every random number is a function of (seed, pass, sample)."""

    seed: int
    on_pixels: tuple[Technique, ...] = ()
    on_normalised: tuple[Technique, ...] = ()
    mixup: Mixup | None = None

    @property
    def has_effect(self) -> bool:
        """Whether the augmentation changes images at all."""
        return bool(self._techniques) or self.mixup is not None

    @property
    def images_per_sample(self) -> int:
        """How many images are fetched for one sample."""
        return 1 if self.mixup is None else 2

    @property
    def numbers_per_sample(self) -> int:
        """Numbers kept per sample: its index, its mixup partner's index, and the random numbers of both."""
        columns = sum(technique.columns for technique in self._techniques)
        return self.images_per_sample * (1 + columns)

    def draw(
        self, indices: NDArray[np.int64], *, passes: NDArray[np.int64], usable: NDArray[np.int64]
    ) -> Drawn:
        """Draws the random numbers of batches (..., batch); mixup takes its partners from `usable`."""
        mix = None
        if self.mixup is not None:
            mix = self.mixup.draw_mix(self.seed, passes=passes, indices=indices)
            partners = self.mixup.draw_partners(self.seed, passes=passes, indices=indices, usable=usable)
            indices = np.concatenate([indices, partners], axis=-1)
            passes = np.concatenate([passes, passes], axis=-1)
        values = [
            technique.draw(self.seed, passes=passes, indices=indices).astype(np.float32)
            for technique in self._techniques
        ]
        none = np.empty((*indices.shape, 0), dtype=np.float32)
        return Drawn(indices=indices, passes=passes, values=np.concatenate([none, *values], axis=-1), mix=mix)

    def prepare(
        self, images: Tensor, labels: Tensor, *, preprocess: Preparation, draws: Tensor, mix: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Augments, preprocesses and mixes stored images; mixup partners come last in `images`."""
        # `draw` writes the columns in the same order: first the techniques on pixels, then those after
        # normalisation.
        column = 0
        pixels = images
        for technique in self.on_pixels:
            pixels = technique.apply(pixels, draws[:, column : column + technique.columns])
            column += technique.columns
        pixels = preprocess(pixels)
        for technique in self.on_normalised:
            pixels = technique.apply(pixels, draws[:, column : column + technique.columns])
            column += technique.columns
        return (pixels if mix is None else mix_images(pixels, mix)), labels

    @property
    def _techniques(self) -> tuple[Technique, ...]:
        return self.on_pixels + self.on_normalised


def augments_at_decode(source: Source) -> TypeGuard[AugmentingSource]:
    """Whether this source decodes a training image differently in each pass (random crops or tiles)."""
    return isinstance(source, AugmentingSource) and source.augments_at_decode


def fetch_for_training(
    source: Source, indices: NDArray[np.int64], *, passes: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Fetches training samples: cropped at random for their pass if the source does that, else plain."""
    return source.fetch_augmented(indices, passes) if augments_at_decode(source) else source.fetch(indices)


@dataclass(frozen=True, slots=True)
class DenseAugmentation:
    """Augments images with their masks; every random number is a function of (seed, pass, sample)."""

    seed: int
    techniques: tuple[DenseTechnique, ...]

    @property
    def has_effect(self) -> bool:
        """Whether the augmentation changes samples at all."""
        return bool(self.techniques)

    @property
    def images_per_sample(self) -> int:
        """How many images are fetched for one sample."""
        return 1

    @property
    def numbers_per_sample(self) -> int:
        """Numbers kept per sample: its index and its random numbers."""
        return 1 + sum(technique.columns for technique in self.techniques)

    def draw(
        self,
        indices: NDArray[np.int64],
        *,
        passes: NDArray[np.int64],
        usable: NDArray[np.int64],  # noqa: ARG002
    ) -> Drawn:
        """Draws the random numbers of batches (..., batch); `usable` is ignored, as there is no mixup."""
        values = [
            technique.draw(self.seed, passes=passes, indices=indices).astype(np.float32)
            for technique in self.techniques
        ]
        none = np.empty((*indices.shape, 0), dtype=np.float32)
        return Drawn(
            indices=indices, passes=passes, values=np.concatenate([none, *values], axis=-1), mix=None
        )

    def prepare(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        preprocess: Preparation,
        draws: Tensor,
        mix: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Puts images and labels on the canvas, augments both, and crops the labels to the output size."""
        # Labels are cropped last: a warp or a crop may move pixels of the margin into the output.
        assert isinstance(preprocess, DensePreprocess), "not a preparation of images with masks"
        assert mix is None, "images with masks are not mixed"
        images, labels = preprocess.on_canvas(images), preprocess.labels(labels)
        column = 0
        for technique in self.techniques:
            images, labels = technique.apply(images, labels, draws[:, column : column + technique.columns])
            column += technique.columns
        return preprocess.finished(images), preprocess.finished_labels(labels)
