"""Small folders in the layouts that people have."""

from pathlib import Path

from tests.data.folders import write_images, write_table
from tests.data.mask_files import classes, grey, save

TWO = {"cat": 3, "dog": 3}


def write_flat(folder: Path, *, count: int = 4, suffix: str = "png") -> Path:
    """Images in no order."""
    for number in range(count):
        save(folder / f"{number}.{suffix}", grey(seed=number))
    return folder


def write_labels(folder: Path, *, count: int = 4) -> Path:
    """Images in images/ and their classes in labels.csv."""
    write_flat(folder / "images", count=count)
    rows = [f"{number}.png,{'xy'[number % 2]}" for number in range(count)]
    write_table(folder / "labels.csv", "file,label", *rows)
    return folder


def write_beside(folder: Path, *, count: int = 3) -> Path:
    """x.png and x_mask.png."""
    for number in range(count):
        save(folder / f"{number}.png", grey(seed=number))
        save(folder / f"{number}_mask.png", classes(2, seed=number) * 255)
    return folder


def write_nuclei(folder: Path, *, count: int = 2, objects: int = 3) -> Path:
    """A folder per image, with a mask for each object, as Kaggle's nuclei come."""
    for number in range(count):
        save(folder / f"id{number}" / "images" / f"id{number}.png", grey(seed=number))
        for one in range(objects):
            save(folder / f"id{number}" / "masks" / f"{one}.png", classes(2, seed=one) * 255)
    return folder


def write_splits(folder: Path, *names: str) -> Path:
    """Class folders in folders of these names."""
    for seed, name in enumerate(names):
        write_images(folder / name, TWO, seed=seed)
    return folder
