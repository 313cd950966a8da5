"""Images that a folder or a pack holds, opened as sources of one size and number of channels."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import dataset_info
from drivetrain.core.errors import BadInputError
from drivetrain.core.progress import counted
from drivetrain.data.files.crop import Fit, RandomCrop
from drivetrain.data.files.decode import BadSampleError, naming_bad_sample
from drivetrain.data.files.folder_files import FolderStore
from drivetrain.data.files.image_source import ImageSource, ImageStore
from drivetrain.data.files.kept_scans import KeptScan
from drivetrain.data.files.side_by_side import mapped
from drivetrain.data.files.white_level import holds_16_bit_grey
from drivetrain.data.source import DataSpec, DataSplits

DEFAULT_SIZE = 224
# ImageNet is measured on the middle 224 of 256.
_IMAGENET_SHORT_SIDE = 256 / 224
_HEADERS_AT_A_TIME = 512
_THREADS = 8
# An image of ImageNet: boxes of 0.05 to 1 of its area that cover at least 0.1 of it.
_IMAGENET_AREA, _IMAGENET_COVER = 0.05, 0.1
_TRAIN = "train"
_TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImages:
    """The images of each split, wherever they lie; `others` are files beside them that are not used."""

    class_names: tuple[str, ...]
    stores: Mapping[str, ImageStore]
    labels: Mapping[str, NDArray[np.int64]]
    others: tuple[str, ...] = ()
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
    white_level: int | None = None

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
            f"--channels {channels} is not supported: image files are read in colour (--channels 3) or grey "
            "(--channels 1)."
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
            white_level=request.white_level,
        )
        for split, store in images.stores.items()
    }
    _require_16_bits(sources[_TRAIN])
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
        white_level=request.white_level,
    )


def _require_16_bits(source: ImageSource) -> None:
    if source.white_level is not None and not holds_16_bit_grey(source):
        raise BadInputError(
            f"--white-level {source.white_level} has no effect: no image is 16-bit grey; leave it out."
        )


def _class_warnings(images: StoredImages) -> list[str]:
    if len(images.class_names) != 1:
        return []
    return [f"All images belong to one class, {images.class_names[0]}, so there is nothing to learn."]


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
        f"--data-dir contains {found[0]} training and {found[1]} validation images of {found[2]} classes; "
        f"the complete data set has {whole[0]} and {whole[1]} of {whole[2]}."
    ]


def choose_fit(
    store: ImageStore, *, image_size: int | None, is_imagenet: bool, refuse_bad: bool
) -> tuple[Fit, list[str]]:
    """How images become samples, and a warning if the size was chosen by default."""
    if is_imagenet:
        size = image_size or DEFAULT_SIZE
        return Fit(height=size, width=size, short_side=round(size * _IMAGENET_SHORT_SIDE)), []
    if image_size is not None:
        return _square(image_size), []
    common = common_size(store, refuse_bad=refuse_bad)
    if common is None:
        return _square(DEFAULT_SIZE), [
            f"The images differ in size and are resized and cropped to {DEFAULT_SIZE}x{DEFAULT_SIZE}; use "
            "--image-size N for another size."
        ]
    width, height = common
    return _square(width) if width == height else Fit(height=height, width=width, short_side=None), []


def common_size(store: ImageStore, *, refuse_bad: bool) -> tuple[int, int] | None:
    """The width and height that all readable images have; None if they differ or none can be read.

    Of many files that are refused where one cannot be read, the answer is remembered between starts.
    """
    if not isinstance(store, FolderStore) or not refuse_bad:
        return _look_for_size(store, refuse_bad=refuse_bad)
    # Checking all files for changes takes longer than reading the first few headers.
    found = _look_for_size(store, refuse_bad=refuse_bad, most=_HEADERS_AT_A_TIME)
    if found is None or len(store) <= _HEADERS_AT_A_TIME:
        return found
    names = [*map(store.name, range(len(store)))]
    kept = KeptScan("image-folder", Path(store.root), names, settings={})
    with suppress(LookupError, TypeError, ValueError):
        size = kept.recall()["size"]
        return None if size is None else (int(size[0]), int(size[1]))
    found = _look_for_size(store, refuse_bad=refuse_bad)
    kept.keep({"size": found})
    return found


def _look_for_size(store: ImageStore, *, refuse_bad: bool, most: int | None = None) -> tuple[int, int] | None:
    found: tuple[int, int] | None = None
    indices = range(len(store))[:most]
    sizes = _sizes(store, indices, refuse_bad=refuse_bad)
    looks = counted(sizes, total=len(indices), what="reading image sizes")
    with closing(looks):
        for size in looks:
            if found is not None and size is not None and size != found:
                return None
            found = size or found
    return found


def _sizes(store: ImageStore, indices: range, *, refuse_bad: bool) -> Iterator[tuple[int, int] | None]:
    """Sizes in order, a few headers ahead: the first difference ends the search."""

    def size_of(index: int) -> tuple[int, int] | None:
        try:
            with naming_bad_sample(store.name(index)):
                return store.size(index)
        except BadSampleError as error:
            if refuse_bad:
                raise BadInputError(str(error)) from error
            return None

    with ThreadPoolExecutor(_THREADS) as threads:
        yield from mapped(threads, size_of, indices, most_ahead=_HEADERS_AT_A_TIME)


def _square(size: int) -> Fit:
    return Fit(height=size, width=size, short_side=size)
