"""What the tests of augmenting images with masks share: samples, and resampling in plain loops."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.technique import DenseTechnique
from drivetrain.data.preprocess import channels_last_view
from tests.data.augment.helpers import in_pass, numbers

Plane = NDArray[np.float64]


def random_images(samples: int, height: int, width: int, channels: int = 1) -> Tensor:
    """Values from -1 to 1, as models see them."""
    values = np.random.default_rng(5).uniform(-1, 1, (samples, height, width, channels))
    return channels_last_view(torch.from_numpy(values.astype(np.float32)))


def random_labels(samples: int, height: int, width: int, *, classes: int = 2, codes: bool = False) -> Tensor:
    """Classes in patches of 2 x 2 pixels, and codes of border weights on request."""
    generator = np.random.default_rng(6)
    patches = generator.integers(0, classes, (samples, -(-height // 2), -(-width // 2)), dtype=np.uint8)
    masks = patches.repeat(2, axis=1).repeat(2, axis=2)[:, :height, :width, np.newaxis]
    if codes:
        more = generator.integers(0, 256, masks.shape, dtype=np.uint8)
        masks = np.concatenate([masks, more], axis=-1)
    return torch.from_numpy(np.ascontiguousarray(masks))


def dense_draws(technique: DenseTechnique, samples: int, *, seed: int = 3, number: int = 0) -> Tensor:
    indices = numbers(samples)
    drawn = technique.draw(seed, passes=in_pass(number, indices), indices=indices)
    assert drawn.shape == (samples, technique.columns)
    return torch.from_numpy(drawn.astype(np.float32))


def assert_company_does_not_matter(technique: DenseTechnique, images: Tensor, labels: Tensor) -> None:
    """Every pair comes out bit for bit the same alone, in any company and by any number of threads."""
    draws = dense_draws(technique, len(images))
    whole = technique.apply(images, labels, draws)
    assert whole[0].is_contiguous(memory_format=torch.channels_last)
    assert whole[0].dtype == torch.float32
    assert whole[1].dtype == torch.uint8
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for part in ([0], [3, 1], list(range(len(images)))[::-1]):
            alone = technique.apply(images[part], labels[part], draws[part])
            assert torch.equal(alone[0], whole[0][part])
            assert torch.equal(alone[1], whole[1][part])
    finally:
        torch.set_num_threads(threads)


def assert_mask_follows_image(technique: DenseTechnique, *, size: tuple[int, int] = (40, 37)) -> None:
    """An image that shows its own mask, -1 and 1, still shows it afterwards."""
    labels = random_labels(6, *size)
    images = channels_last_view(labels.to(torch.float32) * 2 - 1)
    moved, followed = technique.apply(images, labels, dense_draws(technique, 6))
    assert not torch.equal(followed, labels)
    is_clear = moved.abs() > 1e-4
    assert is_clear.float().mean() > 0.95
    shown = (moved >= 0).to(torch.uint8).permute(0, 2, 3, 1)
    assert torch.equal(shown[is_clear.permute(0, 2, 3, 1)], followed[is_clear.permute(0, 2, 3, 1)])
    assert not torch.equal(shown[is_clear.permute(0, 2, 3, 1)], labels[is_clear.permute(0, 2, 3, 1)])


def bilinear_mirrored(plane: Plane, y: Plane, x: Plane) -> Plane:
    """The plane at fractional places, mirrored beyond its borders, pixel by pixel."""
    found = np.empty(y.shape)
    for place in np.ndindex(y.shape):
        top, left = int(np.floor(y[place])), int(np.floor(x[place]))
        down, across = y[place] - top, x[place] - left
        found[place] = sum(
            _mirrored(plane, top + i, left + j) * (down if i else 1 - down) * (across if j else 1 - across)
            for i in (0, 1)
            for j in (0, 1)
        )
    return found


def nearest_mirrored(plane: Plane, y: Plane, x: Plane) -> tuple[Plane, NDArray[np.bool_]]:
    """The nearest pixel's value, and where it is clear which one that is."""
    found = np.empty(y.shape)
    for place in np.ndindex(y.shape):
        found[place] = _mirrored(plane, round(float(y[place])), round(float(x[place])))
    is_clear = (np.abs(y % 1 - 0.5) > 1e-3) & (np.abs(x % 1 - 0.5) > 1e-3)
    return found, is_clear


def _mirrored(plane: Plane, row: int, column: int) -> float:
    height, width = plane.shape
    row, column = row % (2 * height), column % (2 * width)
    return float(plane[min(row, 2 * height - 1 - row), min(column, 2 * width - 1 - column)])


def assert_sampled(
    images: Tensor,
    labels: Tensor,
    *,
    found: tuple[Tensor, Tensor],
    places: list[tuple[Plane, Plane]],
    classes: int,
) -> None:
    """`found` is what plain loops find at `places`: the row and column each pixel of a sample comes from."""
    for index, (y, x) in enumerate(places):
        for channel, plane in enumerate(images[index].double().numpy()):
            expected = bilinear_mirrored(plane, y, x)
            assert np.abs(found[0][index, channel].numpy() - expected).max() < 2e-4
        mask, codes = labels[index].double().permute(2, 0, 1).numpy()
        if classes == 2:
            share = bilinear_mirrored(mask, y, x)
            expected, is_clear = (share >= 0.5).astype(float), np.abs(share - 0.5) > 1e-3
        else:
            expected, is_clear = nearest_mirrored(mask, y, x)
        assert is_clear.mean() > 0.9
        assert np.array_equal(found[1][index, ..., 0].numpy()[is_clear], expected[is_clear])
        code = bilinear_mirrored(codes, y, x)
        assert np.abs(found[1][index, ..., 1].numpy() - code).max() < 0.53
