"""An augmentation: techniques before and after preprocessing, and what chance decided for a batch."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.mixup import Mixup, mix_images
from drivetrain.data.augment.technique import Technique
from drivetrain.data.preprocess import Preparation


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
