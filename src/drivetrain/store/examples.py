"""examples/: small validation pictures of a run, and examples.json, which says what they show."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from drivetrain.core.files import write_json

__all__ = ["EXAMPLES_RECORD", "ShownMask", "ShownSample", "write_mask_examples", "write_sample_examples"]

EXAMPLES_RECORD = "examples.json"


class ShownSample(TypedDict):
    """A classified sample: its picture, its true and its predicted class by index."""

    name: str
    file: str
    truth: int
    predicted: int
    loss: NotRequired[float]


class ShownMask(TypedDict):
    """An image: the files of its pictures, plain and with the true and the predicted mask, and its scores."""

    name: str
    image: str
    truth: str
    predicted: str
    scores: dict[str, float]


def write_sample_examples(
    folder: Path,
    *,
    samples: Sequence[ShownSample],
    cells: Mapping[str, Sequence[int]],
    worst: Sequence[int],
    pictures: Mapping[str, bytes],
) -> None:
    """Writes pictures of a classifier; `cells` ("truth,predicted") and `worst` are indices of samples."""
    _write(folder, {"samples": samples, "cells": cells, "worst": worst}, pictures)


def write_mask_examples(folder: Path, *, masks: Sequence[ShownMask], pictures: Mapping[str, bytes]) -> None:
    """Writes pictures of a segmentation, the worst first."""
    _write(folder, {"masks": masks}, pictures)


def _write(folder: Path, record: Mapping[str, object], pictures: Mapping[str, bytes]) -> None:
    """Writes beside the folder and moves it into place, so that pictures and record belong together."""
    beside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    for name, content in pictures.items():
        (beside / name).write_bytes(content)
    write_json(beside / EXAMPLES_RECORD, record)
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
