"""Whether file names look as if samples came in groups, as patient12_slice03 does; splits never guess."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.groups.find_groups import prefix_of

__all__ = ["SuggestedGroups", "suggest_groups"]

# A group's name has a letter and a number; long numbers are dates, as cameras write them. The rest of a file
# name ends with a number.
_NAME = re.compile(r"(?=.*[A-Za-z])(?=.*\d)(?!.*\d{6})[A-Za-z0-9]{2,16}")
_REST = re.compile(r"[_-].*\d")
_LEAST_MEAN = 3
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedGroups:
    """Groups that file names look like: how many, and the names of the first."""

    count: int
    first: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What to tell the owner of the files."""
        more = ", ..." if self.count > len(self.first) else ""
        return (
            f"files seem to come in {self.count} groups by prefix ({', '.join(self.first)}{more}); "
            "--group-by prefix keeps each on one side of the split into training and validation"
        )


def suggest_groups(paths: Sequence[str], *, labels: NDArray[np.int64] | None) -> SuggestedGroups | None:
    """The groups that `--group-by prefix` would find, if every file name looks like a part of one.

    Every group must have several files. Prefixes that only name the classes are no groups.
    """
    names = [_group_in(path) for path in paths]
    if not names or None in names:
        return None
    groups, of_samples, counts = np.unique(
        np.array(names, dtype=str), return_inverse=True, return_counts=True
    )
    if len(groups) < 2 or int(counts.min()) < 2 or len(paths) < _LEAST_MEAN * len(groups):
        return None
    if labels is not None and _are_classes(of_samples, labels):
        return None
    return SuggestedGroups(count=len(groups), first=tuple(groups[:_MOST_NAMED].tolist()))


def _group_in(path: str) -> str | None:
    """The prefix of a file name that looks like a member of a group."""
    name, stem = prefix_of(path), PurePosixPath(path).stem
    if name is None or not _NAME.fullmatch(name) or not _REST.fullmatch(stem.removeprefix(name)):
        return None
    return name


def _are_classes(of_samples: NDArray[np.int64], labels: NDArray[np.int64]) -> bool:
    """Whether groups and classes divide the samples in the same way."""
    pairs = len(np.unique(np.stack([of_samples, labels]), axis=1).T)
    return pairs == len(np.unique(labels)) == len(np.unique(of_samples))
