"""Small, real segmentations: generated micrographs, and a newcomer's folder of another kind."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import drivetrain
from drivetrain.store.update_history import load_history
from tests.data.mask_files import save
from tests.run.stopping import result_of

SEGMENT: dict[str, Any] = {
    "dataset": "synthetic-em",
    "dataset_size": 12,
    "image_size": 32,
    "model": "unet_same",
    "model_width": 2,
    "model_params": {"depth": 1},
    "micro_batch_size": 4,
    "num_epochs": 2,
    "seed": 1,
    "device": "cpu",
}
# Beside `SEGMENT`: the images' own size is that of the generator, and tiles are cut out of it.
TILES: dict[str, Any] = {"image_size": None, "tile_size": 24, "dataset_size": 8, "num_workers": 0}
ALL_AUGMENTATIONS: dict[str, Any] = {
    "augment": True,
    "rotate": 30,
    "elastic": 1.5,
    "gamma": 0.3,
    "noise": 0.1,
}
COLOURS = np.array([(0, 0, 0), (0, 0, 255), (255, 0, 0)], dtype=np.uint8)
ODD_SIZES = ((37, 45), (41, 33), (50, 29), (33, 61), (45, 37), (39, 40))


def segment(path: Path, **options: Any) -> drivetrain.RunResult:
    """Trains the small segmentation into a directory, quietly; options replace its values."""
    return result_of(drivetrain.train, quiet=True, output_dir=str(path), **{**SEGMENT, **options})


def losses_of(run: Path) -> NDArray[np.float64]:
    """The loss of every update."""
    return load_history(run / "updates.npz")["loss"]


def draw_shapes(height: int, width: int, *, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A noisy colour image of a yellow disc and a green square, and the class of each pixel: 0, 1, 2."""
    generator = np.random.default_rng(seed)
    image = generator.integers(40, 120, (height, width, 3)).astype(np.uint8)
    rows, columns = np.indices((height, width))
    disc = (rows - height // 3) ** 2 + (columns - width // 3) ** 2 < 64
    square = (abs(rows - 2 * height // 3) < 6) & (abs(columns - 2 * width // 3) < 6)
    image[disc], image[square] = (220, 220, 40), (40, 220, 40)
    return image, np.select([square, disc], [2, 1], 0).astype(np.uint8)


def write_shapes(folder: Path, *, sizes: tuple[tuple[int, int], ...] = ODD_SIZES) -> Path:
    """A newcomer's folder: RGB images of odd sizes, masks of three colours in a twin folder."""
    for number, (height, width) in enumerate(sizes):
        image, classes = draw_shapes(height, width, seed=number)
        save(folder / "images" / f"{number}.png", image)
        save(folder / "masks" / f"{number}.png", COLOURS[classes])
    return folder
