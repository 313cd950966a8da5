"""`--group-by`: which samples belong together, by the names of their files."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.groups.sample_paths import sample_paths
from drivetrain.data.masks.pages import file_of
from drivetrain.data.source import DataSplits, Source

__all__ = ["Groups", "find_groups", "group_names", "prefix_of"]

_PREFIX = re.compile(r"[^_\-.]+")
# Folders of a layout, which say nothing about what an image shows.
_LAYOUT = {"train", "val", "validation", "test", "images", "imgs", "image", "img"}
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The group of every sample, as a number from 0, and the names of the groups."""

    of_samples: NDArray[np.int64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)


def find_groups(splits: DataSplits, *, group_by: str, data_dir: str | None) -> Groups:
    """The groups of the training samples; refused if they would not change a split."""
    found = group_names(
        splits.train, group_by=group_by, data_dir=data_dir, class_names=splits.spec.class_names
    )
    names, of_samples = np.unique(found, return_inverse=True)
    groups = Groups(of_samples=of_samples.astype(np.int64), names=tuple(names.tolist()))
    if len(groups) == 1:
        raise BadInputError(
            f"--group-by {group_by} puts all {len(found)} samples into one group, {groups.names[0]}, so none "
            f"could be held out; {_other_ways(group_by)}."
        )
    if len(groups) == len(found):
        raise BadInputError(
            f"--group-by {group_by} gives each of the {len(found)} samples a group of its own "
            f"({first_names(list(groups.names), most=_MOST_NAMED)}), so it has no effect; "
            f"{_other_ways(group_by)}."
        )
    return groups


def group_names(
    source: Source, *, group_by: str, data_dir: str | None, class_names: Sequence[str]
) -> list[str]:
    """The name of every sample's group."""
    paths = sample_paths(source, data_dir=data_dir)
    if paths is None:
        raise BadInputError(
            f"--group-by {group_by} needs samples with file names, as image-folder, mask-folder and packed "
            "have them, and these data have none; leave it out."
        )
    group_of = _group_of(group_by, class_names=frozenset(class_names))
    found = [group_of(path) for path in paths]
    without = [path for path, group in zip(paths, found, strict=True) if not group]
    if without:
        raise BadInputError(
            f"--group-by {group_by} finds a group in {len(paths) - len(without)} of {len(paths)} files, but "
            f"none in {first_names(without, most=_MOST_NAMED)}; {_other_ways(group_by)}."
        )
    return [group for group in found if group]


def prefix_of(path: str) -> str | None:
    """The name of a file up to its first `_`, `-` or `.`."""
    match = _PREFIX.match(PurePosixPath(path).name)
    return None if match is None else match[0]


def _group_of(group_by: str, *, class_names: frozenset[str]) -> Callable[[str], str | None]:
    if group_by == "prefix":
        return prefix_of
    if group_by == "file":
        return lambda path: file_of(path) or path
    if group_by == "folder":
        return lambda path: _folder_of(path, class_names)
    pattern = re.compile(group_by)
    is_of_path = "/" in group_by

    def matched(path: str) -> str | None:
        file = file_of(path) or path
        match = pattern.search(file if is_of_path else PurePosixPath(file).name)
        return None if match is None else match[1]

    return matched


def _folder_of(path: str, class_names: frozenset[str]) -> str | None:
    """The first folder below the class folder, or of images with masks below the folders of the layout."""
    folders = PurePosixPath(path).parts[:-1]
    if folders and folders[0] in class_names:
        folders = folders[1:]
    return next((folder for folder in folders if folder not in _LAYOUT), None)


def _other_ways(group_by: str) -> str:
    others = [way for way in ("prefix", "folder") if way != group_by]
    return (
        f"try --group-by {' or '.join(others)}, or a regular expression with one group, such as "
        r"--group-by '^(patient\d+)_'"
    )
