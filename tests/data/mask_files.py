"""Small folders of images with masks for the tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from drivetrain.data.files.tiff_pages import write_pages


def save(path: Path, pixels: NDArray[Any], *, mode: str | None = None) -> Path:
    """Writes pixels as the kind of file its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(path)
    return path


def save_palette(path: Path, indices: NDArray[np.uint8], colours: list[tuple[int, int, int]]) -> Path:
    """Writes palette indices as a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.frombytes("P", indices.shape[::-1], indices.tobytes())
    image.putpalette([part for colour in colours for part in colour])
    image.save(path)
    return path


def grey(height: int = 12, width: int = 10, *, seed: int = 0) -> NDArray[np.uint8]:
    """Pixels of a grey image."""
    return np.random.default_rng(seed).integers(0, 256, (height, width)).astype(np.uint8)


def colour(height: int = 12, width: int = 10, *, seed: int = 0) -> NDArray[np.uint8]:
    """Pixels of a colour image."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def classes(count: int, height: int = 12, width: int = 10, *, seed: int = 0) -> NDArray[np.uint8]:
    """A class for each pixel, every class present."""
    mask = np.random.default_rng(seed).integers(0, count, (height, width)).astype(np.uint8)
    mask.reshape(-1)[:count] = np.arange(count)
    return mask


def write_pairs(folder: Path, *, count: int = 3, values: tuple[int, ...] = (0, 255)) -> Path:
    """Grey images with masks of these values in twin folders."""
    for number in range(count):
        save(folder / "images" / f"{number}.png", grey(seed=number))
        mask = np.array(values, dtype=np.uint8)[classes(len(values), seed=number)]
        save(folder / "masks" / f"{number}.png", mask)
    return folder


def save_pages(path: Path, pages: Sequence[NDArray[Any]]) -> Path:
    """Writes a TIFF of several pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_pages(path, pages)
    return path


def write_volume(folder: Path, *, sizes: Sequence[tuple[int, int]] = ((12, 10),) * 4) -> Path:
    """A grey volume and its binary masks in twin folders."""
    pages = [grey(*size, seed=number) for number, size in enumerate(sizes)]
    masks = [classes(2, *size, seed=number) * np.uint8(255) for number, size in enumerate(sizes)]
    save_pages(folder / "images" / "cells.tif", pages)
    save_pages(folder / "masks" / "cells.tif", masks)
    return folder
