"""Little pictures as data URIs, drawn from a seed."""

import io
from base64 import b64encode

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]


def data_uri(pixels: Pixels) -> str:
    """The pixels as a PNG inside an address."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG")
    return f"data:image/png;base64,{b64encode(stream.getvalue()).decode()}"


def digit_like(seed: int) -> str:
    """A grey picture of 16 x 16 with some strokes."""
    generator = np.random.default_rng(seed)
    pixels = np.zeros((16, 16), dtype=np.uint8)
    for _ in range(3):
        row, column = generator.integers(2, 13, size=2)
        if generator.random() < 0.5:
            pixels[row, 3:13] = 230
        else:
            pixels[3:13, column] = 230
    return data_uri(pixels)


def cells(seed: int, *, side: int = 96) -> tuple[str, str, str]:
    """An image with round cells, the true mask, and a prediction that is a little off."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    truth = np.zeros((side, side), dtype=bool)
    predicted = np.zeros((side, side), dtype=bool)
    for _ in range(9):
        row, column = generator.integers(6, side - 6, size=2)
        radius = generator.integers(6, 15)
        truth |= (rows - row) ** 2 + (columns - column) ** 2 < radius**2
        off = generator.integers(-3, 4, size=2)
        predicted |= (rows - row - off[0]) ** 2 + (columns - column - off[1]) ** 2 < (radius * 0.95) ** 2
    image = np.where(truth, 165, 70) + generator.normal(0, 14, (side, side))
    return (
        data_uri(np.clip(image, 0, 255).astype(np.uint8)),
        _mask(truth, colour=(0, 158, 115)),
        _mask(predicted, colour=(213, 94, 0)),
    )


def _mask(found: NDArray[np.bool_], *, colour: tuple[int, int, int]) -> str:
    pixels = np.zeros((*found.shape, 4), dtype=np.uint8)
    pixels[found] = (*colour, 255)
    return data_uri(pixels)
