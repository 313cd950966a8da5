"""Reads all images and masks of a segmentation data set, for `drivetrain data check`."""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.progress import counted
from drivetrain.data.commands.fetch_table import REMOTE_DATASETS
from drivetrain.data.commands.fetch_volume import is_whole_volume
from drivetrain.data.files.decode import BadSampleError
from drivetrain.data.files.side_by_side import mapped
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.masks.masked_splits import MaskedSplits
from drivetrain.data.source import BadSample
from drivetrain.data.sources.isbi2012 import open_isbi2012, unlabelled_volume

__all__ = ["CheckedMasks", "check_isbi2012", "check_mask_folder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMasks:
    """Counts of each split and size (height x width), and how many of the pixels are of each class."""

    counts: dict[str, int]
    image_sizes: dict[str, int]
    class_shares: dict[str, float]
    warnings: tuple[str, ...]
    bad_samples: tuple[BadSample, ...]


def check_isbi2012(data_dir: str) -> CheckedMasks:
    """Counts the pages and compares the pixels with those of the challenge."""
    splits = open_isbi2012(data_dir)
    unlabelled = unlabelled_volume(data_dir)
    warnings = [*splits.warnings] or _pixel_warnings(Path(data_dir))
    return _measured(splits, warnings=warnings, unlabelled=0 if unlabelled is None else len(unlabelled))


def check_mask_folder(data_dir: str) -> CheckedMasks:
    """Decodes every image and every mask."""
    splits = open_mask_folder(data_dir, on_bad_sample="skip")
    return _measured(splits, warnings=splits.warnings)


def _pixel_warnings(folder: Path) -> list[str]:
    files = [file for group in REMOTE_DATASETS["isbi2012"].groups for file in group]
    changed = [
        file.name
        for file in files
        if (folder / file.name).is_file() and not is_whole_volume(folder / file.name, file.checksum)
    ]
    return [
        f"{name} does not hold the pixels of the challenge; results will not compare." for name in changed
    ]


def _measured(splits: MaskedSplits, *, warnings: list[str], unlabelled: int = 0) -> CheckedMasks:
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    measured = {name: _measure(part, split=name) for name, part in parts.items() if part is not None}
    bad = tuple(sample for each in measured.values() for sample in each.bad)
    sizes = sum((each.sizes for each in measured.values()), Counter[str]())
    pixels = np.zeros(splits.spec.num_classes, dtype=np.int64)
    for each in measured.values():
        pixels += each.pixels_of(splits.spec.num_classes)
    shares = (pixels / max(1, pixels.sum())).tolist()
    counts = {name: 0 if part is None else len(part) for name, part in parts.items()}
    return CheckedMasks(
        counts={**counts, "test": counts["test"] + unlabelled},
        image_sizes=dict(sizes.most_common()),
        class_shares=dict(zip(splits.spec.class_names, shares, strict=True)),
        warnings=tuple(warnings),
        bad_samples=bad,
    )


@dataclass(slots=True)
class _Measured:
    """What was read of one split."""

    sizes: Counter[str]
    histograms: list[NDArray[np.int64]]
    bad: list[BadSample]

    def pixels_of(self, num_classes: int) -> NDArray[np.int64]:
        total = np.zeros(num_classes, dtype=np.int64)
        for histogram in self.histograms:
            total[: len(histogram)] += histogram
        return total


def _measure(masked: MaskedImages, *, split: str) -> _Measured:
    measured = _Measured(Counter(), [], [])

    def read(index: int) -> tuple[str, NDArray[np.int64]] | BadSample:
        try:
            image, mask = masked.whole(index)
        except BadSampleError as error:
            return BadSample(split=split, index=index, name=error.name, reason=error.reason)
        return f"{image.shape[0]}x{image.shape[1]}", np.bincount(mask[..., 0].reshape(-1))

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        reads = mapped(threads, read, range(len(masked)))
        for found in counted(reads, total=len(masked), what=f"reading {split} images"):
            if isinstance(found, BadSample):
                measured.bad.append(found)
            else:
                measured.sizes[found[0]] += 1
                measured.histograms.append(found[1])
    return measured
