"""What the tests of augmentation share."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.technique import Technique
from drivetrain.data.preprocess import channels_last_view


def numbers(samples: int, *, first: int = 0) -> NDArray[np.int64]:
    return np.arange(first, first + samples, dtype=np.int64)


def in_pass(number: int, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.full_like(indices, number)


def random_pixels(samples: int, height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    generator = np.random.default_rng(5)
    return generator.integers(0, 256, (samples, height, width, channels), dtype=np.uint8)


def as_float_images(pixels: NDArray[np.uint8]) -> Tensor:
    return channels_last_view(torch.from_numpy(pixels.astype(np.float32)))


def as_array(images: Tensor) -> NDArray[np.float64]:
    """(samples, height, width, channels) in double precision."""
    return images.permute(0, 2, 3, 1).numpy().astype(np.float64)


def draws_of(technique: Technique, indices: NDArray[np.int64], *, seed: int = 3, number: int = 0) -> Tensor:
    drawn = technique.draw(seed, passes=in_pass(number, indices), indices=indices)
    assert drawn.shape == (len(indices), technique.columns)
    return torch.from_numpy(drawn.astype(np.float32))


def column(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def assert_batch_does_not_matter(technique: Technique, images: Tensor) -> None:
    """Every image comes out bit for bit the same alone, in any company and by any number of threads."""
    draws = draws_of(technique, numbers(len(images)))
    whole = technique.apply(images, draws)
    assert whole.is_contiguous(memory_format=torch.channels_last)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for part in ([0], [3, 1], list(range(len(images)))[::-1]):
            assert torch.equal(technique.apply(images[part], draws[part]), whole[part])
    finally:
        torch.set_num_threads(threads)
