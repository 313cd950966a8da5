"""One way to read a folder, with what is needed to choose between several."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from drivetrain.core.wording import count_of
from drivetrain.data.files.folder_files import SKIPPED
from drivetrain.data.finding.found_data import FoundData

__all__ = ["Candidate", "described_splits", "others_left_out", "sentences_left_out"]

_MOST_KINDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Data as one data set would read them.

    `holding` says in a few words what they are. `num_images` counts the samples of all splits, where that is
    known, and `class_names` are the classes that have some. `all_background` looks into masks, and returns a
    sentence if there is nothing in them.
    """

    found: FoundData
    holding: str
    num_images: int | None = None
    class_names: tuple[str, ...] | None = None
    all_background: Callable[[], str | None] = lambda: None


def described_splits(counts: Mapping[str, int], *, noun: str = "image") -> str:
    """The images of each split, as in "1000 training and 300 validation images"."""
    if len(counts) == 1:
        return count_of(next(iter(counts.values())), noun)
    words = {"train": "training", "validation": "validation", "test": "test"}
    *first, last = [f"{count} {words[split]}" for split, count in counts.items()]
    return f"{', '.join(first)} and {last} {noun}s"


def sentences_left_out(others: Iterable[str], warnings: Iterable[str]) -> list[str]:
    """Sentences about files that are no images, and what else a reader says of a folder."""
    return [*others_left_out(others), *(each for each in warnings if SKIPPED not in each)]


def others_left_out(names: Iterable[str]) -> list[str]:
    """A sentence about files that are no images; none if there are none."""
    suffixes = [PurePosixPath(name).suffix.lower() or "no extension" for name in names]
    if not suffixes:
        return []
    kinds = sorted(set(suffixes), key=lambda suffix: (-suffixes.count(suffix), suffix))
    shown = ", ".join(kinds[:_MOST_KINDS]) + (", ..." if len(kinds) > _MOST_KINDS else "")
    if len(suffixes) == 1:
        return [f"1 file is not an image ({shown}) and is left out."]
    return [f"{len(suffixes)} files are not images ({shown}) and are left out."]
