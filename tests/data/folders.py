"""Small folders of images for the tests."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def write_images(
    folder: Path, counts: Mapping[str, int], *, sizes: tuple[tuple[int, int], ...] = ((8, 8),), seed: int = 0
) -> Path:
    """PNGs of random pixels, so many per class; the sizes (width, height) take turns."""
    random = np.random.default_rng(seed)
    number = 0
    for class_name, count in counts.items():
        (folder / class_name).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            width, height = sizes[number % len(sizes)]
            pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / class_name / f"{index:03}.png")
            number += 1
    return folder


def truncate(path: Path) -> Path:
    """Cuts a file in the middle of its pixels."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def write_table(path: Path, header: str, *rows: str) -> Path:
    """A table of labels, line by line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n")
    return path
