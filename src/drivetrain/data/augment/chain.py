"""An augmentation: a chain of techniques on images, or on images with masks, and the draws of a batch."""

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
    """What chance decided for batches of samples, one batch per row of the leading axes.

    With mixup the partners follow the samples of their batch, so that `indices`, `passes` and `values` are
    twice as long as `mix`.
    """

    indices: NDArray[np.int64]
    passes: NDArray[np.int64]
    values: NDArray[np.float32]
    mix: NDArray[np.float32] | None


class AnyAugmentation(Protocol):
    """What feeds ask of the random changes of a task's training samples."""

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
    """The random changes of training images; every one is a function of (seed, pass, sample)."""

    seed: int
    on_pixels: tuple[Technique, ...] = ()
    on_normalised: tuple[Technique, ...] = ()
    mixup: Mixup | None = None

    @property
    def has_effect(self) -> bool:
        """Whether it changes images at all."""
        return bool(self._techniques) or self.mixup is not None

    @property
    def images_per_sample(self) -> int:
        """How many images are fetched for one sample."""
        return 1 if self.mixup is None else 2

    @property
    def numbers_per_sample(self) -> int:
        """How many numbers are kept for one sample: its index, its partner's, and what is drawn for both."""
        columns = sum(technique.columns for technique in self._techniques)
        return self.images_per_sample * (1 + columns)

    def draw(
        self, indices: NDArray[np.int64], *, passes: NDArray[np.int64], usable: NDArray[np.int64]
    ) -> Drawn:
        """Chance for batches of samples (..., batch); mixup takes its partners from `usable`."""
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
        """Stored images, partners last, as the model sees them: changed, preprocessed and mixed."""
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
    """Whether training images of this source differ from pass to pass."""
    return isinstance(source, AugmentingSource) and source.augments_at_decode


def fetch_for_training(
    source: Source, indices: NDArray[np.int64], *, passes: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The samples as training sees them in their passes; without chance at decoding, plain ones."""
    return source.fetch_augmented(indices, passes) if augments_at_decode(source) else source.fetch(indices)


@dataclass(frozen=True, slots=True)
class DenseAugmentation:
    """The random changes of training samples; every one is a function of (seed, pass, sample)."""

    seed: int
    techniques: tuple[DenseTechnique, ...]

    @property
    def has_effect(self) -> bool:
        """Whether it changes samples at all."""
        return bool(self.techniques)

    @property
    def images_per_sample(self) -> int:
        """How many images are fetched for one sample."""
        return 1

    @property
    def numbers_per_sample(self) -> int:
        """How many numbers are kept for one sample: its index and what is drawn for it."""
        return 1 + sum(technique.columns for technique in self.techniques)

    def draw(
        self,
        indices: NDArray[np.int64],
        *,
        passes: NDArray[np.int64],
        usable: NDArray[np.int64],  # noqa: ARG002
    ) -> Drawn:
        """Chance for batches of samples (..., batch); no sample needs another one."""
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
        """Stored images and labels as model and loss see them: on the canvas, changed, labels cropped."""
        assert isinstance(preprocess, DensePreprocess), "not a preparation of images with masks"
        assert mix is None, "images with masks are not mixed"
        images, labels = preprocess(images), preprocess.labels(labels)
        column = 0
        for technique in self.techniques:
            images, labels = technique.apply(images, labels, draws[:, column : column + technique.columns])
            column += technique.columns
        return images, preprocess.finished_labels(labels)
