"""Weights in several files: an index names the part that holds each tensor."""

import json
from pathlib import Path

__all__ = ["is_index", "parts_of"]


def is_index(name: str) -> bool:
    """Whether a file is a list of parts."""
    return name.endswith(".index.json")


def parts_of(path: Path) -> list[Path]:
    """The parts that an index names, beside it; none for any other file. Raises ValueError if damaged."""
    if not is_index(path.name):
        return []
    try:
        # Only the last part of a name: an index from elsewhere must not lead out of its folder.
        names = {Path(name).name for name in json.loads(path.read_text())["weight_map"].values()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{path.name} is damaged") from error
    return [path.parent / name for name in sorted(names)]
