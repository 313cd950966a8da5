"""Small volumes of ISBI 2012's form."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.files.tiff_pages import write_pages

PAGES, SIDE = 5, 16


def volumes() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (PAGES, SIDE, SIDE)).astype(np.uint8)
    return images, np.where(random.random(images.shape) < 0.2, 0, 255).astype(np.uint8)


def write_isbi(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A small data set in a folder; returns its images and labels."""
    images, labels = volumes()
    folder.mkdir(parents=True, exist_ok=True)
    write_pages(folder / "train-volume.tif", list(images))
    write_pages(folder / "train-labels.tif", list(labels))
    return images, labels
