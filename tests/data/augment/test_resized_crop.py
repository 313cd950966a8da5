"""The random resized crop."""

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from drivetrain.data.augment.random_crop import ResizedCrop
from tests.data.augment.helpers import (
    as_array,
    as_float_images,
    assert_batch_does_not_matter,
    draws_of,
    numbers,
    random_pixels,
)
from tests.data.bilinear import bilinear_by_hand


def crop_of(
    height: int, width: int, *, share: float = 0.1, size: tuple[int, int] | None = None
) -> ResizedCrop:
    return ResizedCrop(smallest_share=share, height=height, width=width, size=size or (height, width))


@pytest.mark.parametrize(
    ("height", "width", "size"), [(12, 12, (12, 12)), (9, 14, (9, 14)), (16, 16, (7, 7))]
)
def test_equals_cutting_and_resizing_by_hand(height: int, width: int, size: tuple[int, int]) -> None:
    pixels = random_pixels(25, height, width)
    technique = crop_of(height, width, size=size)
    draws = draws_of(technique, numbers(25))
    images = technique.apply(as_float_images(pixels), draws)
    assert images.shape == (25, 3, *size)
    for index, (top, left, box_height, box_width) in enumerate(draws.int().tolist()):
        box = pixels[index, top : top + box_height, left : left + box_width]
        of_torch = interpolate(as_float_images(box[np.newaxis]), size=size, mode="bilinear")
        assert torch.allclose(images[index], of_torch[0], atol=1e-3)
        if size[0] == size[1]:
            by_hand = bilinear_by_hand(box[..., 1].astype(np.float64), size[0])
            assert np.allclose(as_array(images)[index, ..., 1], by_hand, atol=1e-3)


def test_the_whole_image_stays_as_it_is() -> None:
    pixels = random_pixels(4, 6, 6)
    technique = crop_of(6, 6, share=1.0)
    draws = draws_of(technique, numbers(4))
    assert draws.tolist() == [[0, 0, 6, 6]] * 4
    assert np.array_equal(as_array(technique.apply(as_float_images(pixels), draws)), pixels)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 80), (300, 40)])
def test_boxes_lie_inside_and_have_the_area_and_shape_asked_for(height: int, width: int) -> None:
    top, left, heights, widths = (
        draws_of(crop_of(height, width, share=0.2), numbers(20000)).double().unbind(1)
    )
    assert top.min() >= 0
    assert left.min() >= 0
    assert (top + heights).max() <= height
    assert (left + widths).max() <= width
    shares = heights * widths / (height * width)
    assert 0.2 - 2 / min(height, width) < shares.min() < 0.25
    assert shares.max() > 0.95
    assert abs(shares.mean() - 0.6) < 0.02
    if height < 2 * width:
        assert (widths / heights).max() < 4 / 3 * 1.1
        assert (widths / heights).min() > 3 / 4 * 0.9


def test_the_batch_does_not_matter() -> None:
    assert_batch_does_not_matter(crop_of(11, 9), as_float_images(random_pixels(9, 11, 9)))
