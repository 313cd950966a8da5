"""`--dataset image-folder` and `--dataset imagenet`: class folders of image files, or a pack of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import dataset_info
from drivetrain.core.errors import BadInputError
from drivetrain.data.files.crop import Fit, RandomCrop
from drivetrain.data.files.folder_files import (
    ClassFiles,
    class_folders,
    first_names,
    holds_images,
    list_classes,
)
from drivetrain.data.files.image_source import ImageSource, ImageStore
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.data.sources.data_dir import existing_folder
from drivetrain.data.sources.image_size import choose_fit
from drivetrain.data.sources.near_folders import folder_above, folder_that_works

_TRAIN = "train"
_VALIDATION = ("val", "validation")
_TEST = "test"
_FEW = 5
_PAIRS = {"images", "masks"}
_RECIPE_OF_A_RUN = "recipe.yaml"
# An image of ImageNet: boxes of 0.05 to 1 of its area that cover at least 0.1 of it.
_IMAGENET_AREA, _IMAGENET_COVER = 0.05, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImages:
    """The images of each split, wherever they lie."""

    class_names: tuple[str, ...]
    stores: Mapping[str, ImageStore]
    labels: Mapping[str, NDArray[np.int64]]
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRequest:
    """What a recipe asks of image files."""

    dataset: str
    image_size: int | None = None
    channels: int | None = None
    seed: int = 0
    augment: bool | None = None
    random_resized_crop: float | None = None
    on_bad_sample: str = "error"

    @property
    def is_imagenet(self) -> bool:
        return self.dataset == "imagenet"

    def crop(self) -> RandomCrop | None:
        """The random parts to train on, where training takes some."""
        if self.augment is False:
            return None
        if self.random_resized_crop is not None:
            return RandomCrop(seed=self.seed, smallest_area=self.random_resized_crop)
        if self.is_imagenet:
            return RandomCrop(seed=self.seed, smallest_area=_IMAGENET_AREA, smallest_cover=_IMAGENET_COVER)
        return None


def open_images(images: StoredImages, *, request: ImageRequest) -> DataSplits:
    """The sources of images that were found, in the size and channels asked for."""
    channels = 3 if request.channels is None else request.channels
    if channels not in (1, 3):
        raise BadInputError(
            f"--channels {channels} is impossible: image files are read as --channels 3 or --channels 1."
        )
    fit, size_warnings = choose_fit(
        images.stores[_TRAIN],
        image_size=request.image_size,
        is_imagenet=request.is_imagenet,
        refuse_bad=request.on_bad_sample == "error",
    )
    sources = {
        split: ImageSource(
            store=store,
            labels=images.labels[split],
            fit=fit,
            channels=channels,
            crop=request.crop() if split == _TRAIN else None,
        )
        for split, store in images.stores.items()
    }
    return DataSplits(
        train=sources[_TRAIN],
        validation=sources.get("validation"),
        test=sources.get(_TEST),
        spec=_spec(images.class_names, fit=fit, channels=channels, request=request),
        warnings=[
            *images.warnings,
            *size_warnings,
            *_class_warnings(images),
            *_count_warnings(images, request=request),
        ],
    )


def open_image_folder(data_dir: str | None, *, request: ImageRequest) -> DataSplits:
    """Class folders, or the pack that lies in --data-dir instead of them."""
    from drivetrain.data.sources.pack import is_pack, read_pack

    folder = existing_folder(data_dir, dataset=request.dataset, holding="a folder for each class")
    return open_images(read_pack(folder) if is_pack(folder) else find_images(folder), request=request)


def find_images(folder: Path) -> StoredImages:
    """The images of DIR/train, DIR/val and DIR/test, or of DIR alone."""
    split_folders, warnings = _split_folders(folder)
    class_names = class_folders(split_folders[_TRAIN])
    if set(class_names) == _PAIRS:
        raise BadInputError(
            f"--data-dir {folder} holds images and their masks, which are no classes; --dataset mask-folder "
            "reads them."
        )
    if split_folders[_TRAIN] == folder:
        if len(class_names) < 2:
            _refuse_wrong_level(folder, holding="fewer than two classes")
        _refuse_level_above(folder, class_names)
    if not class_names:
        raise BadInputError(
            f"--data-dir {folder} holds no class folders; it must be like {folder}/cat/1.jpg and "
            f"{folder}/dog/2.jpg, or {folder}/train/cat/1.jpg and {folder}/val/cat/2.jpg."
        )
    found = {split: _list_split(path, class_names) for split, path in split_folders.items()}
    if len(found[_TRAIN].store) == 0:
        raise BadInputError(
            f"--data-dir {folder} holds no images in its class folders ({first_names(list(class_names))})."
        )
    kept = {split: files for split, files in found.items() if len(files.store)}
    return StoredImages(
        class_names=class_names,
        stores={split: files.store for split, files in kept.items()},
        labels={split: files.labels for split, files in kept.items()},
        warnings=[*warnings, *(warning for files in found.values() for warning in files.warnings)],
    )


def _refuse_wrong_level(folder: Path, *, holding: str) -> None:
    above = folder_above(folder, _holds_classes) if holds_images(folder) else None
    meant = above or folder_that_works(folder, _holds_classes)
    if meant is not None:
        classes = class_folders(_split_folders(meant)[0][_TRAIN])
        raise BadInputError(
            f"--data-dir {folder} holds {holding}, but --data-dir {meant} holds {first_names(list(classes))}."
        )


def _refuse_level_above(folder: Path, names: tuple[str, ...]) -> None:
    """Refuses folders of classes in the place of classes; a class may be divided into folders of its own."""
    if any(holds_images(folder / name) for name in names):
        return
    below = {name: class_folders(folder / name) for name in names}
    if any(set(inner) == _PAIRS or _has_run(folder / name, inner) for name, inner in below.items()):
        _refuse_wrong_level(folder, holding="other things than classes")
    for name, inner in below.items():
        alike = [other for other in names if below[other] == inner]
        if len(inner) > 1 and len(alike) > 1 and _holds_classes(folder / name):
            raise BadInputError(
                f"--data-dir {folder} holds the same folders ({first_names(list(inner))}) in each of "
                f"{first_names(alike)}; use --data-dir {folder / name} if they are the classes, or move "
                f"{first_names(alike)} into {folder / _TRAIN} if these are."
            )


def _has_run(folder: Path, names: tuple[str, ...]) -> bool:
    return any((folder / name / _RECIPE_OF_A_RUN).is_file() for name in names)


def _holds_classes(folder: Path) -> bool:
    """Whether two folders in a folder, or in its train, hold images."""
    train = _split_folders(folder)[0][_TRAIN]
    names = class_folders(train)
    if set(names) == _PAIRS or _has_run(train, names[:_FEW]):
        return False
    return sum(holds_images(train / name) for name in names[:_FEW]) > 1


def _list_split(folder: Path, class_names: tuple[str, ...]) -> ClassFiles:
    unknown = sorted(set(class_folders(folder)) - set(class_names))
    if unknown:
        raise BadInputError(
            f"--data-dir: {folder} has the class {first_names(unknown)}, which the training images do not "
            "have; add it there or remove it here."
        )
    return list_classes(folder, class_names)


def _split_folders(folder: Path) -> tuple[dict[str, Path], list[str]]:
    train = folder / _TRAIN
    # A class may be called train too, but then it holds images, not classes.
    if not train.is_dir() or not class_folders(train):
        return {_TRAIN: folder}, []
    found = {_TRAIN: train}
    validation = [folder / name for name in _VALIDATION if (folder / name).is_dir()]
    if len(validation) > 1:
        raise BadInputError(f"--data-dir {folder} holds both val and validation; keep one of the two.")
    has_test = (folder / _TEST).is_dir()
    if validation:
        found["validation"] = validation[0]
        if has_test:
            found[_TEST] = folder / _TEST
    elif has_test:
        found["validation"] = folder / _TEST
    others = sorted(set(class_folders(folder)) - {path.name for path in found.values()})
    warning = f"{folder} also holds {first_names(others)}, which is none of train, val and test and left out."
    return found, [warning] if others else []


def _spec(class_names: tuple[str, ...], *, fit: Fit, channels: int, request: ImageRequest) -> DataSpec:
    normalised = request.is_imagenet and channels == 3
    return DataSpec(
        channels=channels,
        height=fit.height,
        width=fit.width,
        num_classes=len(class_names),
        class_names=class_names,
        image_dtype="uint8",
        normalisation="imagenet" if normalised else "unit",
        short_side=fit.short_side,
    )


def _class_warnings(images: StoredImages) -> list[str]:
    if len(images.class_names) != 1:
        return []
    return [f"All images are of a single class, {images.class_names[0]}, which leaves nothing to learn."]


def _count_warnings(images: StoredImages, *, request: ImageRequest) -> list[str]:
    if not request.is_imagenet:
        return []
    info = dataset_info(request.dataset)
    train, validation = (
        len(images.labels[split]) if split in images.labels else 0 for split in (_TRAIN, "validation")
    )
    found = (train, validation, len(images.class_names))
    whole = (info.train_samples, info.validation_samples, info.num_classes)
    if found == whole:
        return []
    return [
        f"--data-dir holds {found[0]} training and {found[1]} validation images of {found[2]} classes; the "
        f"whole data set has {whole[0]} and {whole[1]} of {whole[2]}."
    ]
