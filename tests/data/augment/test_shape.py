"""Operations that move pixels, against SciPy's interpolation."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import affine_transform
from torch import Tensor

from drivetrain.data.augment import rand_augment as shape
from tests.data.augment.helpers import as_array, as_float_images, column, random_pixels

Operation = Callable[[Tensor, Tensor], Tensor]


def expected_image(
    pixels: NDArray[np.uint8], matrix: list[list[float]], shift: tuple[float, float] = (0, 0)
) -> NDArray[np.float64]:
    """Row and column from where `matrix` about the centre says; grey outside."""
    centre = (np.array(pixels.shape[:2]) - 1) / 2
    offset = centre - np.array(matrix) @ centre + np.array(shift)
    channels = [
        affine_transform(
            pixels[..., channel].astype(np.float64),
            np.array(matrix),
            offset=offset,
            order=1,
            mode="grid-constant",
            cval=128,
        )
        for channel in range(pixels.shape[2])
    ]
    return np.stack(channels, axis=-1)


def check(
    operation: Operation, strength: float, matrix: list[list[float]], shift: tuple[float, float] = (0, 0)
) -> None:
    pixels = random_pixels(3, 9, 12)
    found = as_array(operation(as_float_images(pixels), column([strength] * 3)))
    assert np.abs(found[1] - expected_image(pixels[1], matrix, shift)).max() < 0.01


@pytest.mark.parametrize("strength", [-1.0, -0.4, 0.0, 0.7])
def test_rotation_is_about_the_centre(strength: float) -> None:
    cosine, sine = np.cos(strength * np.pi / 6), np.sin(strength * np.pi / 6)
    check(shape.rotate, strength, [[cosine, -sine], [sine, cosine]])


@pytest.mark.parametrize("strength", [-1.0, 0.0, 0.5])
def test_shear_slides_rows_or_columns(strength: float) -> None:
    check(shape.shear_x, strength, [[1, 0], [0.3 * strength, 1]])
    check(shape.shear_y, strength, [[1, 0.3 * strength], [0, 1]])


@pytest.mark.parametrize("strength", [-1.0, 0.0, 0.5])
def test_translation_is_a_share_of_the_size(strength: float) -> None:
    unchanged = [[1.0, 0.0], [0.0, 1.0]]
    check(shape.translate_x, strength, unchanged, shift=(0, 0.45 * 12 * strength))
    check(shape.translate_y, strength, unchanged, shift=(0.45 * 9 * strength, 0))
