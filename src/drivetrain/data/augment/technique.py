"""Interfaces of augmentation techniques, and the 48-bit keys from which they draw many numbers."""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.core.element_hash import GOLDEN_SIGNED, mix_words
from drivetrain.data.draws import draw_per_sample

__all__ = ["KEY_COLUMNS", "DenseTechnique", "Technique", "draw_keys", "draw_per_sample", "keys_from"]

KEY_COLUMNS = 2
# Draws are float32, which represents whole numbers of up to 24 bits exactly.
_BITS_PER_COLUMN = 24


class Technique(Protocol):
    """A random change of images: the host draws a few numbers per sample, `apply` runs on any device.

    `apply` changes every image by its own numbers alone, so the result does not depend on the layout
    (replicas, stages, accumulation).
    """

    @property
    def columns(self) -> int:
        """How many numbers one sample takes."""
        ...

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The numbers of each sample in its pass over the data, in a last axis of `columns`."""
        ...

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """The changed images (samples, channels, height, width), given their numbers (samples, columns)."""
        ...


class DenseTechnique(Protocol):
    """A random change of images and their labels; each pair is changed by its own numbers alone."""

    @property
    def columns(self) -> int:
        """How many numbers one sample takes."""
        ...

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The numbers of each sample in its pass over the data, in a last axis of `columns`."""
        ...

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Changed images (samples, channels, height, width) and labels (samples, height, width, channels)."""
        ...


def draw_keys(
    seed: int, purpose: str, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Draws a 48-bit key per sample, as two whole numbers of 24 bits."""
    halves = [
        draw_per_sample(seed, f"{purpose} key {half}", passes=passes, indices=indices)
        for half in range(KEY_COLUMNS)
    ]
    return np.floor(np.stack(halves, axis=-1) * float(2**_BITS_PER_COLUMN))


def keys_from(draws: Tensor) -> Tensor:
    """The int64 keys whose halves are in the two columns of `draws`."""
    high, low = draws.to(torch.int64).unbind(1)
    return mix_words((high * 2**_BITS_PER_COLUMN + low) * GOLDEN_SIGNED)
