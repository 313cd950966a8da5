"""Colour operations against Pillow's, which round to whole levels."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

from drivetrain.data.augment import rand_augment as colour
from drivetrain.data.augment.rand_augment import equalise
from tests.data.augment.helpers import as_array, as_float_images, column, random_pixels

Operation = Callable[[Tensor, Tensor], Tensor]
STRENGTHS = (-1.0, -0.35, 0.0, 0.5, 1.0)

ENHANCERS: list[tuple[Operation, type]] = [
    (colour.brightness, ImageEnhance.Brightness),
    (colour.contrast, ImageEnhance.Contrast),
    (colour.saturation, ImageEnhance.Color),
    (colour.sharpness, ImageEnhance.Sharpness),
]


@pytest.mark.parametrize(("operation", "enhancer"), ENHANCERS)
def test_enhancing_equals_pillow_to_a_rounded_level(operation: Operation, enhancer: type) -> None:
    pixels = random_pixels(len(STRENGTHS), 9, 7)
    found = as_array(operation(as_float_images(pixels), column(STRENGTHS)))
    for index, strength in enumerate(STRENGTHS):
        expected = np.asarray(enhancer(Image.fromarray(pixels[index])).enhance(1 + 0.9 * strength))
        assert np.abs(found[index] - expected).max() <= 1.5
    assert np.allclose(found[2], pixels[2], atol=1e-4)
    assert np.abs(found[4] - pixels[4]).max() > 20


def test_smoothing_has_pillows_kernel_and_leaves_the_border() -> None:
    pixels = random_pixels(1, 9, 7)
    # Strength -1/0.9 gives the smooth picture itself.
    found = as_array(colour.sharpness(as_float_images(pixels), column([-1 / 0.9])))[0]
    smooth = np.asarray(Image.fromarray(pixels[0]).filter(ImageFilter.SMOOTH))
    assert np.abs(found - smooth).max() <= 1
    assert np.allclose(found[0], pixels[0, 0], atol=1e-4)


@pytest.mark.parametrize(("strength", "bits"), [(0.0, 8), (0.5, 6), (-1.0, 4)])
def test_posterise_drops_bits(strength: float, bits: int) -> None:
    pixels = random_pixels(2, 9, 7)
    found = as_array(colour.posterise(as_float_images(pixels), column([strength] * 2)))
    assert np.array_equal(found[1], np.asarray(ImageOps.posterize(Image.fromarray(pixels[1]), bits)))


def test_solarise_inverts_above_a_threshold() -> None:
    pixels = random_pixels(3, 9, 7)
    found = as_array(colour.solarise(as_float_images(pixels), column([0.0, 0.5, -1.0])))
    assert np.array_equal(found[0], pixels[0])
    assert np.array_equal(found[1], np.asarray(ImageOps.solarize(Image.fromarray(pixels[1]), 128)))
    assert np.array_equal(found[2], 255 - pixels[2])


def test_autocontrast_uses_the_whole_range() -> None:
    pixels = random_pixels(2, 9, 7) // 3 + 40
    pixels[1, :, :, 2] = 9
    found = as_array(colour.autocontrast(as_float_images(pixels), column([0.0, 1.0])))
    for index in range(2):
        expected = np.asarray(ImageOps.autocontrast(Image.fromarray(pixels[index])))
        assert np.abs(found[index] - expected).max() <= 1.01
    assert np.array_equal(found[1, ..., 2], pixels[1, ..., 2])


def test_equalise_is_pillows() -> None:
    pixels = random_pixels(3, 40, 30)
    pixels[1] //= 9
    pixels[2] = 17
    found = as_array(equalise(as_float_images(pixels), column([0.0] * 3)))
    for index in range(3):
        assert np.array_equal(found[index], np.asarray(ImageOps.equalize(Image.fromarray(pixels[index]))))


def test_saturation_of_grey_images_changes_nothing() -> None:
    images = as_float_images(random_pixels(2, 5, 5, channels=1))
    assert torch.allclose(colour.saturation(images, column([0.9, -0.9])), images)
