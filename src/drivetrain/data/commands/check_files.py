"""Reads a data set's samples and masks and compares them with what it should have: `drivetrain data check
NAME`.
"""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import DatasetInfo, dataset_info
from drivetrain.catalogue.tasks import task_info
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.core.progress import counted
from drivetrain.data.bad_samples import find_bad
from drivetrain.data.commands.fetch_table import REMOTE_DATASETS
from drivetrain.data.commands.fetch_volume import is_whole_volume
from drivetrain.data.files.data_dir import existing_folder
from drivetrain.data.files.decode import BadSampleError
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.files.side_by_side import mapped
from drivetrain.data.label_tables.rows import TableRequest
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.data.masks.masked_images import MaskedImages, MaskedSplits
from drivetrain.data.source import BadSample, DataSplits
from drivetrain.data.sources.cifar import open_cifar
from drivetrain.data.sources.digits import open_digits
from drivetrain.data.sources.image_folder import find_images
from drivetrain.data.sources.image_table import open_image_table
from drivetrain.data.sources.isbi2012 import open_isbi2012, unlabelled_volume
from drivetrain.data.sources.mnist import open_mnist
from drivetrain.data.sources.pack import damaged_files, is_pack, open_packed
from drivetrain.data.sources.stored_images import ImageRequest, open_images

__all__ = ["CheckedDataset", "CheckedMasks", "check_dataset", "check_isbi2012", "check_mask_folder"]

# Images are decoded only to see whether they can be; a small size is fast.
_ANY_SIZE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMasks:
    """Number of images per split and per size (height x width), and each class's share of the pixels."""

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
        f"{name} does not contain the pixels of the challenge; results will not be comparable."
        for name in changed
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
    """Image sizes, class histograms and unreadable samples of one split."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDataset:
    """The result of a check; `train`, `validation` and `test` are numbers of samples.

    For segmentation also the number of images per size (height x width) and each class's share of the pixels.
    """

    name: str
    train: int
    validation: int
    test: int
    classes: int
    warnings: tuple[str, ...]
    bad_samples: tuple[BadSample, ...]
    image_sizes: dict[str, int] = field(default_factory=dict)
    class_shares: dict[str, float] = field(default_factory=dict)

    @property
    def is_readable(self) -> bool:
        return not self.bad_samples


def check_dataset(name: str, *, data_dir: str | None, table: TableRequest | None = None) -> CheckedDataset:
    """Opens a data set and reads all of it; `table` says which columns of a table are meant."""
    info = dataset_info(name)
    if info.generated:
        raise BadInputError(f"data check {name} has nothing to check: its samples are generated.")
    if info.needs_files:
        existing_folder(data_dir, dataset=info.name, holding="its files")
    if task_info(info.task).has_dense_labels:
        return _checked_masks(info, data_dir or "")
    try:
        splits = _open(info, data_dir, table or TableRequest())
        bad = _unreadable(splits)
    except BadInputError as error:
        raise RunFailedError(str(error)) from error
    counts = [
        0 if source is None else len(source) for source in (splits.train, splits.validation, splits.test)
    ]
    return CheckedDataset(
        name=info.name,
        train=counts[0],
        validation=counts[1],
        test=counts[2],
        classes=splits.spec.num_classes,
        warnings=tuple(splits.warnings) or _size_warnings(info, train=counts[0], validation=counts[1]),
        bad_samples=bad,
    )


def _checked_masks(info: DatasetInfo, data_dir: str) -> CheckedDataset:
    try:
        found = check_isbi2012(data_dir) if info.name == "isbi2012" else check_mask_folder(data_dir)
    except BadInputError as error:
        raise RunFailedError(str(error)) from error
    return CheckedDataset(
        name=info.name,
        **found.counts,
        classes=len(found.class_shares),
        warnings=found.warnings,
        bad_samples=found.bad_samples,
        image_sizes=found.image_sizes,
        class_shares=found.class_shares,
    )


def _open(info: DatasetInfo, data_dir: str | None, table: TableRequest) -> DataSplits:
    if info.name == "mnist":
        return open_mnist(data_dir)
    if info.name in ("cifar10", "cifar100"):
        return open_cifar(info.name, data_dir=data_dir)
    if info.name == "digits":
        return open_digits()
    folder = Path(data_dir or "")
    request = ImageRequest(dataset=info.name, image_size=_ANY_SIZE, on_bad_sample="skip")
    if info.name == "packed" or is_pack(folder):
        splits = open_packed(data_dir, request=request)
        damaged = damaged_files(folder)
        if damaged:
            raise RunFailedError(
                f"{folder} is damaged: {first_names(damaged)} changed since it was packed; pack it again."
            )
        return splits
    if info.name == "image-table":
        asked = replace(table, skips_missing=True)
        return open_image_table(data_dir, asked=asked, request=request)
    return open_images(find_images(folder), request=request)


def _unreadable(splits: DataSplits) -> tuple[BadSample, ...]:
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return tuple(
        bad for split, source in parts.items() if source is not None for bad in find_bad(source, split=split)
    )


def _size_warnings(info: DatasetInfo, *, train: int, validation: int) -> tuple[str, ...]:
    expected = (info.train_samples, info.validation_samples)
    if not info.is_sized or expected == (train, validation):
        return ()
    return (
        f"There are {train} training and {validation} validation samples; the complete data set has "
        f"{expected[0]} and {expected[1]}.",
    )
