"""Names of the parts of a data set: training, validation and test, as folders or as words in a table."""

from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.folder_files import class_folders

__all__ = ["SPLIT_NAMES", "split_called", "split_folders"]

_NAMES = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
SPLIT_NAMES = tuple(name for names in _NAMES.values() for name in names)


def split_called(word: str) -> str | None:
    """The split that a word means, in capital letters or not: train, validation or test."""
    return next((split for split, names in _NAMES.items() if word.lower() in names), None)


def split_folders(folder: Path) -> dict[str, Path]:
    """The folders of the splits in a folder, in the order train, validation, test."""
    found: dict[str, list[str]] = {split: [] for split in _NAMES}
    for name in class_folders(folder):
        split = split_called(name)
        if split is not None:
            found[split].append(name)
    for names in found.values():
        if len(names) > 1:
            raise BadInputError(
                f"--data-dir {folder} contains both {names[0]} and {names[1]}; keep only one."
            )
    return {split: folder / names[0] for split, names in found.items() if names}
