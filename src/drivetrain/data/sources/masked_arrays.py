"""A user's own images with masks, as arrays or tensors: segmentation data without files."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from drivetrain.core.errors import BadInputError
from drivetrain.data.masks.masked_images import HeldMaskedImages, MaskedSplits
from drivetrain.data.source import DataSpec, require_finite
from drivetrain.data.sources.given_pixels import LOOKED_AT, range_warning, read_images
from drivetrain.data.sources.given_samples import is_array

__all__ = ["is_masked", "masked_splits_of"]

# Masks are stored in uint8.
_MOST_CLASSES = 256


def is_masked(data: Any) -> bool:
    """Whether data are (images, masks) rather than (images, one label each) or a data set."""
    pair = _pair_of(data)
    return pair is not None and len(pair[1].shape) >= 3


def masked_splits_of(train: Any, validation: Any = None) -> MaskedSplits:
    """Splits of (images, masks) for training and, optionally, for validation.

    Images are as `read_images` takes them; masks are (samples, height, width) whole numbers from 0, or
    booleans. The classes are named by their numbers.
    """
    held = _held(train)
    spec = _spec(held)
    warning = range_warning(held.images[:LOOKED_AT])
    warnings = [*_class_warnings(held), *([] if warning is None else [warning])]
    if validation is None:
        return MaskedSplits(train=held, validation=None, test=None, spec=spec, warnings=warnings)
    held_validation = _held(validation)
    other = _spec(held_validation)
    if (other.channels, other.image_dtype) != (spec.channels, spec.image_dtype):
        raise BadInputError(
            f"The validation images have {other.channels} channels in {other.image_dtype}, but the training "
            f"images {spec.channels} in {spec.image_dtype}; both must have the same channels and type."
        )
    spec = spec.with_num_classes(max(spec.num_classes, other.num_classes))
    return MaskedSplits(train=held, validation=held_validation, test=None, spec=spec, warnings=warnings)


def _class_warnings(held: HeldMaskedImages) -> list[str]:
    value = int(held.masks.flat[0])
    if (held.masks != value).any():
        return []
    return [
        f"Every pixel of the training masks is of class {value}, so the model cannot learn the other classes."
    ]


def _pair_of(data: Any) -> tuple[Any, Any] | None:
    parts = data.tensors if isinstance(data, TensorDataset) else data
    if not isinstance(parts, tuple | list) or len(parts) != 2 or not all(map(is_array, parts)):
        return None
    return parts[0], parts[1]


def _held(data: Any) -> HeldMaskedImages:
    pair = _pair_of(data)
    if pair is None or not is_masked(data):
        raise BadInputError(
            "The training data are images with masks, but the validation data are not; give (images, masks)."
        )
    images, masks = read_images(pair[0]), _read_masks(pair[1])
    if len(images) != len(masks):
        raise BadInputError(
            f"There are {len(images)} images but {len(masks)} masks; each image needs one mask."
        )
    if len(images) == 0:
        raise BadInputError("The data set has no samples; give at least one.")
    if images.shape[1:3] != masks.shape[1:3]:
        raise BadInputError(
            f"The masks are {_size(masks)}, but their images are {_size(images)} (height x width); give "
            "both the same size."
        )
    require_finite(images)
    names = tuple(f"image {index}" for index in range(len(images)))
    return HeldMaskedImages(images=images, masks=masks, names=names)


def _read_masks(masks: Any) -> NDArray[np.uint8]:
    """Masks as (samples, height, width, 1) in uint8."""
    is_tensor = isinstance(masks, torch.Tensor)
    values: NDArray[Any] = masks.detach().cpu().numpy() if is_tensor else masks
    if values.ndim == 4 and values.shape[1 if is_tensor else 3] == 1:
        values = values.reshape(len(values), *(values.shape[2:] if is_tensor else values.shape[1:3]))
    if values.ndim != 3:
        raise BadInputError(
            f"The masks have the shape {values.shape}; they must be (samples, height, width), a class for "
            "each pixel (for one plane per class, give the argmax over the planes)."
        )
    if values.dtype != np.bool_ and not np.issubdtype(values.dtype, np.integer):
        raise BadInputError(f"The masks are {values.dtype}; they must be whole numbers, for example uint8.")
    _require_classes(values)
    return values.astype(np.uint8, copy=False)[..., np.newaxis]


def _require_classes(values: NDArray[Any]) -> None:
    for value in () if values.size == 0 else (int(values.min()), int(values.max())):
        if not 0 <= value < _MOST_CLASSES:
            index = int(np.flatnonzero((values == value).any(axis=(1, 2)))[0])
            raise BadInputError(
                f"The mask of image {index} contains the value {value}; classes are whole numbers from 0 to "
                f"{_MOST_CLASSES - 1}."
            )


def _spec(held: HeldMaskedImages) -> DataSpec:
    height, width, channels = held.images.shape[1:]
    num_classes = max(2, int(held.masks.max()) + 1)
    return DataSpec(
        channels=channels,
        height=height,
        width=width,
        num_classes=num_classes,
        class_names=tuple(str(number) for number in range(num_classes)),
        image_dtype="uint8" if held.images.dtype == np.uint8 else "float32",
        normalisation="symmetric",
        task="segmentation",
    )


def _size(values: NDArray[Any]) -> str:
    return f"{values.shape[1]}x{values.shape[2]}"
