"""A generated classification data set: each class is a smooth pattern, each sample its pattern plus noise."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import dataset_info, generated_validation_samples
from drivetrain.core.randomness import draw_uniform, draw_words, stream_key
from drivetrain.data.source import DataSpec, DataSplits

_WAVES_PER_CLASS = 2
_FEWEST_CYCLES, _MOST_CYCLES = 0.5, 2.5
_MID_GREY = 127.5
_WEAKEST_CONTRAST, _STRONGEST_CONTRAST = 16.0, 48.0
_NOISE_AMPLITUDE = 64.0
_BYTES_PER_WORD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSource:
    """Generates sample i as a pure function of (seed, split, i); its class is i modulo the classes."""

    seed: int
    split: str
    samples: int
    channels: int
    height: int
    width: int
    num_classes: int

    def __len__(self) -> int:
        return self.samples

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Generates the samples at `indices`."""
        labels = indices % self.num_classes
        classes, class_of_sample = np.unique(labels, return_inverse=True)
        pixels = self._patterns(classes)[class_of_sample]
        pixels *= self._contrasts(indices)[:, np.newaxis, np.newaxis, np.newaxis]
        pixels += self._noise(indices)
        return np.rint(np.clip(pixels + np.float32(_MID_GREY), 0, 255)).astype(np.uint8), labels

    def _contrasts(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        draws = draw_uniform(stream_key(self.seed, "synthetic contrast", self.split), indices)
        return (_WEAKEST_CONTRAST + (_STRONGEST_CONTRAST - _WEAKEST_CONTRAST) * draws).astype(np.float32)

    def _noise(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Uniform noise; one hashed word gives eight pixels."""
        elements = self.height * self.width * self.channels
        words_per_image = -(-elements // _BYTES_PER_WORD)
        counters = indices[:, np.newaxis] * words_per_image + np.arange(words_per_image, dtype=np.int64)
        words = draw_words(stream_key(self.seed, "synthetic noise", self.split), counters)
        # Little-endian on every machine, so that the bytes of a word are in the same order everywhere.
        draws = words.astype("<u8", copy=False).view(np.uint8)[:, :elements].astype(np.float32)
        noise = (draws - np.float32(_MID_GREY)) * np.float32(_NOISE_AMPLITUDE / _MID_GREY)
        return noise.reshape(-1, self.height, self.width, self.channels)

    def _patterns(self, classes: NDArray[np.int64]) -> NDArray[np.float32]:
        """The patterns of some classes: sums of products of a vertical and a horizontal wave."""
        rows = _waves(self.seed, "rows", self.num_classes, self.height, self.channels)[:, classes]
        columns = _waves(self.seed, "columns", self.num_classes, self.width, self.channels)[:, classes]
        products = rows[:, :, :, np.newaxis, :] * columns[:, :, np.newaxis, :, :]
        return np.asarray(products.sum(axis=0))


@lru_cache(maxsize=4)
def _waves(seed: int, axis: str, num_classes: int, length: int, channels: int) -> NDArray[np.float32]:
    """Cosines of random frequency and phase, shaped (wave, class, position, channel)."""
    shape = (_WAVES_PER_CLASS, num_classes, 1, channels)
    counters = np.arange(np.prod(shape), dtype=np.int64)
    cycles = draw_uniform(stream_key(seed, "synthetic cycles", axis), counters).reshape(shape)
    phases = draw_uniform(stream_key(seed, "synthetic phases", axis), counters).reshape(shape)
    positions = ((np.arange(length) + 0.5) / length)[:, np.newaxis]
    turns = (_FEWEST_CYCLES + (_MOST_CYCLES - _FEWEST_CYCLES) * cycles) * positions + phases
    return np.cos(2 * np.pi * turns).astype(np.float32)


def open_synthetic(
    *,
    seed: int,
    dataset_size: int | None,
    channels: int | None,
    image_size: int | None,
    num_classes: int | None,
) -> DataSplits:
    """The generated source in the size and shape a recipe asks for."""
    info = dataset_info("synthetic")
    train_samples = dataset_size or info.train_samples
    spec = DataSpec(
        channels=channels or info.channels,
        height=image_size or info.height,
        width=image_size or info.width,
        num_classes=num_classes or info.num_classes,
        class_names=tuple(str(index) for index in range(num_classes or info.num_classes)),
        image_dtype="uint8",
    )
    return DataSplits(
        train=_source(spec, seed=seed, split="train", samples=train_samples),
        validation=_source(
            spec, seed=seed, split="validation", samples=generated_validation_samples(train_samples)
        ),
        test=None,
        spec=spec,
    )


def _source(spec: DataSpec, *, seed: int, split: str, samples: int) -> SyntheticSource:
    return SyntheticSource(
        seed=seed,
        split=split,
        samples=samples,
        channels=spec.channels,
        height=spec.height,
        width=spec.width,
        num_classes=spec.num_classes,
    )
