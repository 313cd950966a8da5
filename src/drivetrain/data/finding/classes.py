"""Recognises class folders."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.decode import IMAGE_SUFFIXES
from drivetrain.data.files.folder_files import class_folders, first_names, holds_images
from drivetrain.data.files.split_folders import split_folders
from drivetrain.data.finding.candidate import Candidate, described_splits, sentences_left_out
from drivetrain.data.finding.found_data import FoundData
from drivetrain.data.masks.find_pairs import is_called_like_a_part, mask_layout
from drivetrain.data.sources.image_folder import find_images, folder_of_classes
from drivetrain.data.sources.pack import is_pack
from drivetrain.data.sources.stored_images import StoredImages

__all__ = ["class_candidate", "find_classes"]

_FEWEST = 2


def find_classes(folder: Path) -> Candidate | None:
    """The images of at least two class folders."""
    top = folder_of_classes(folder)
    names = [name for name in class_folders(top) if not _is_part(name)]
    if sum(_holds_images_below(top / name) for name in names) < _FEWEST:
        return None
    _refuse_several_data_sets(top, names)
    images = find_images(folder, by_name_only=True)
    left_out = sentences_left_out([*images.others, *_beside_classes(folder)], images.warnings)
    return class_candidate(
        folder, images, dataset="image-folder", left_out=[*left_out, *_loose_images(folder)]
    )


def class_candidate(
    folder: Path,
    images: StoredImages,
    *,
    dataset: str,
    left_out: list[str],
    source: str = "class folders",
    options: Mapping[str, Any] | None = None,
) -> Candidate:
    """Images with classes; `source` says where the classes come from."""
    counts = {split: len(store) for split, store in images.stores.items()}
    used = np.unique(np.concatenate([*images.labels.values()]))
    names = tuple(images.class_names[number] for number in used)
    sentence = (
        f"{folder} holds {described_splits(counts)} of {len(images.class_names)} classes "
        f"({first_names([*images.class_names], most=3)}), from {source}."
    )
    return Candidate(
        found=FoundData(
            dataset=dataset,
            data_dir=folder,
            sentence=sentence,
            options=options or {},
            left_out=tuple(left_out),
        ),
        holding=f"images of {len(names)} classes from {source}",
        num_images=sum(counts.values()),
        class_names=names,
    )


def _is_part(name: str) -> bool:
    """Whether a folder is called like a part of a data set, such as test, train_images or images_001."""
    words = [word for word in re.split(r"[\W\d_]+", name) if word]
    return bool(words) and all(is_called_like_a_part(Path(word)) for word in words)


def _holds_images_below(folder: Path) -> bool:
    return holds_images(folder) or any(holds_images(folder / name) for name in class_folders(folder))


def _refuse_several_data_sets(top: Path, names: list[str]) -> None:
    """Refuses folders that are data sets of their own in the place of classes."""
    several = [name for name in names if _is_data_set(top / name)]
    if several:
        raise BadInputError(
            f"{top} holds folders that are data sets themselves ({first_names(several)}); name one of them, "
            f"such as {top / several[0]}, or read all folders as classes with --dataset image-folder."
        )


def _is_data_set(folder: Path) -> bool:
    return is_pack(folder) or "train" in split_folders(folder) or mask_layout(folder) is not None


def _files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".") and path.is_file()]


def _beside_classes(folder: Path) -> list[str]:
    return [name for name in _files_in(folder) if not name.lower().endswith(IMAGE_SUFFIXES)]


def _loose_images(folder: Path) -> list[str]:
    loose = [name for name in _files_in(folder) if name.lower().endswith(IMAGE_SUFFIXES)]
    if not loose:
        return []
    return [
        f"Images in {folder} itself are in no class folder and are left out: {first_names(sorted(loose))}."
    ]
