"""`--dataset isbi2012`: micrographs of a fly's nerve cord, and the membranes between its cells."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import dataset_info
from drivetrain.core.errors import BadInputError
from drivetrain.data.files.data_dir import existing_folder, way_out
from drivetrain.data.files.tiff_pages import read_volume
from drivetrain.data.masks.masked_images import HeldMaskedImages, MaskedSplits
from drivetrain.data.source import DataSpec

__all__ = ["holds_isbi2012", "open_isbi2012", "unlabelled_volume"]

_IMAGES, _LABELS, _TEST = "train-volume.tif", "train-labels.tif", "test-volume.tif"
_HOLDING = f"{_IMAGES} and {_LABELS}"
_MEMBRANE, _CELL = 0, 255


def open_isbi2012(data_dir: str | None) -> MaskedSplits:
    """All images with labels; the test volume has none."""
    folder = existing_folder(data_dir, dataset="isbi2012", holding=_HOLDING)
    images, labels = _read(folder / _IMAGES), _read(folder / _LABELS)
    _require_pairs(folder, images=images, labels=labels)
    _require_binary(folder / _LABELS, labels)
    masked = HeldMaskedImages(
        images=images[..., np.newaxis],
        masks=(labels == _CELL).astype(np.uint8)[..., np.newaxis],
        names=tuple(f"{folder / _IMAGES} page {number}" for number in range(1, len(images) + 1)),
    )
    spec = _spec(height=images.shape[1], width=images.shape[2])
    warnings = _warnings(folder, images)
    return MaskedSplits(train=masked, validation=None, test=None, spec=spec, warnings=warnings)


def holds_isbi2012(folder: Path) -> bool:
    """Whether both training volumes are there."""
    return all((folder / name).is_file() for name in (_IMAGES, _LABELS))


def unlabelled_volume(data_dir: str) -> NDArray[np.uint8] | None:
    """The volume without labels, None where it is not there."""
    path = Path(data_dir) / _TEST
    return _read(path) if path.is_file() else None


def _read(path: Path) -> NDArray[np.uint8]:
    if not path.is_file():
        remedy = way_out(
            path.parent,
            holds_isbi2012,
            otherwise=f"run `drivetrain data fetch isbi2012 --data-dir {path.parent}` to download it",
        )
        raise BadInputError(f"--data-dir {path.parent} lacks {path.name}; {remedy}.")
    volume = read_volume(path)
    if volume.dtype != np.uint8 or volume.ndim != 3:
        depth = "colour" if volume.ndim > 3 else f"{volume.dtype} grey"
        raise BadInputError(
            f"{path} contains {depth} pixels instead of 8-bit grey; save it as an 8-bit grey TIFF, or "
            "download it again."
        )
    return volume


def _require_pairs(folder: Path, *, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
    if len(images) != len(labels):
        raise BadInputError(
            f"{folder / _IMAGES} has {len(images)} pages, but {_LABELS} has {len(labels)}; each image needs "
            "its labels, so download or export the two files again."
        )
    if images.shape != labels.shape:
        raise BadInputError(
            f"{folder / _IMAGES} has pages of {images.shape[1]}x{images.shape[2]}, but {_LABELS} of "
            f"{labels.shape[1]}x{labels.shape[2]}; give both the same size."
        )


def _require_binary(path: Path, labels: NDArray[np.uint8]) -> None:
    is_wrong = (labels != _MEMBRANE) & (labels != _CELL)
    if not is_wrong.any():
        return
    page, row, column = np.argwhere(is_wrong)[0]
    raise BadInputError(
        f"{path} page {page + 1} contains the label {labels[page, row, column]} instead of {_MEMBRANE} "
        f"(membrane) or {_CELL} (cell); set such pixels to one of these values, or use "
        "--dataset mask-folder for other classes."
    )


def _spec(*, height: int, width: int) -> DataSpec:
    info = dataset_info("isbi2012")
    return DataSpec(
        channels=info.channels,
        height=height,
        width=width,
        num_classes=info.num_classes,
        class_names=info.class_names,
        image_dtype="uint8",
        normalisation="symmetric",
        task="segmentation",
        mask_values=((_MEMBRANE,), (_CELL,)),
    )


def _warnings(folder: Path, images: NDArray[np.uint8]) -> list[str]:
    info = dataset_info("isbi2012")
    whole = (info.train_samples, info.height, info.width)
    if images.shape == whole:
        return []
    return [
        f"--data-dir {folder} contains {len(images)} images of {images.shape[1]}x{images.shape[2]}; the "
        f"complete data set has {whole[0]} of {whole[1]}x{whole[2]}."
    ]
