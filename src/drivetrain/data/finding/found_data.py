"""What a folder turned out to hold, as options of the recipe and as sentences."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["FoundData"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundData:
    """A folder of data: how to read it, and what to tell its owner.

    `data_dir` is the folder that the data set reads, which may lie below the one that was given; `options`
    are further options of the recipe, such as those that name a table of labels.
    """

    dataset: str
    data_dir: Path
    sentence: str
    options: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
