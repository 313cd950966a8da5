"""Counts a data set's samples and compares them with what it should have: `drivetrain data check NAME`."""

from dataclasses import dataclass, field
from pathlib import Path

from drivetrain.catalogue.data_sets import DatasetInfo, dataset_info
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.data.bad_samples import find_bad
from drivetrain.data.commands.verify_masks import check_isbi2012, check_mask_folder
from drivetrain.data.files.data_dir import existing_folder
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.source import BadSample, DataSplits
from drivetrain.data.sources.cifar import open_cifar
from drivetrain.data.sources.digits import open_digits
from drivetrain.data.sources.image_folder import find_images
from drivetrain.data.sources.mnist import open_mnist
from drivetrain.data.sources.pack import damaged_files, is_pack, open_packed
from drivetrain.data.sources.stored_images import ImageRequest, open_images

_ANY_SIZE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDataset:
    """What was found; `train`, `validation` and `test` are counts of samples.

    Of segmentation also how many images have which size (height x width), and which share of the pixels is of
    each class.
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


def check_dataset(name: str, *, data_dir: str | None) -> CheckedDataset:
    """Opens a data set and reads all of it."""
    info = dataset_info(name)
    if info.generated:
        raise BadInputError(f"data check {name} has nothing to check: its samples are generated.")
    if info.needs_files:
        existing_folder(data_dir, dataset=info.name, holding="its files")
    if info.task == "segmentation":
        return _checked_masks(info, data_dir or "")
    try:
        splits = _open(info, data_dir)
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


def _open(info: DatasetInfo, data_dir: str | None) -> DataSplits:
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
            raise RunFailedError(f"{folder} is damaged: {first_names(damaged)} changed since it was packed.")
        return splits
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
        f"There are {train} training and {validation} validation samples; the whole data set has "
        f"{expected[0]} and {expected[1]}.",
    )
