"""Small files of pictures that are shown on a page."""

from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from drivetrain.pictures.overlays import displayable, panel_size, scaled_pixels

__all__ = ["encode_small", "small_picture"]

_JPEG_QUALITY = 85


def small_picture(image: NDArray[Any], *, sides: tuple[int, int]) -> NDArray[np.uint8]:
    """An image of any kind as 8-bit RGB, its long side scaled into the range `sides`."""
    size = panel_size(image.shape[0], image.shape[1], sides)
    return scaled_pixels(displayable(image), size)


def encode_small(pixels: NDArray[np.uint8]) -> tuple[str, bytes]:
    """A picture as PNG or JPEG, whichever is smaller, and the ending of its name."""
    picture = Image.fromarray(pixels)
    png, jpeg = BytesIO(), BytesIO()
    picture.save(png, format="PNG", optimize=True)
    picture.save(jpeg, format="JPEG", quality=_JPEG_QUALITY)
    found = min((png.getvalue(), ".png"), (jpeg.getvalue(), ".jpg"), key=lambda each: len(each[0]))
    return found[1], found[0]
