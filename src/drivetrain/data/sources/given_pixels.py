"""Reads and checks images and labels that a user gives as arrays or tensors."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError

LOOKED_AT = 8
"""How many images tell whether their range is a usual one."""

_MOST_LIKELY_CHANNELS = 4
# Standardised images stay far below this value; unscaled bytes go far beyond it.
_LARGEST_USUAL = 30.0


def read_images(images: NDArray[Any] | torch.Tensor) -> NDArray[Any]:
    """Images as (samples, height, width, channels) in uint8 or float32.

    numpy images are (samples, height, width[, channels]), tensors (samples[, channels], height, width).
    """
    return _read_tensor(images) if isinstance(images, torch.Tensor) else _read_array(images)


def read_labels(labels: Any) -> NDArray[np.int64]:
    """Labels as whole numbers from 0."""
    numbers = labels.detach().cpu().numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1:
        one_hot = "; for one-hot labels, give labels.argmax(1)" if numbers.ndim == 2 else ""
        raise BadInputError(
            f"The labels have the shape {numbers.shape}; they must be one whole number per sample{one_hot}."
        )
    if len(numbers) and not np.issubdtype(numbers.dtype, np.integer):
        numbers = _whole_numbers(numbers)
    if len(numbers) and int(numbers.min()) < 0:
        index = int(np.flatnonzero(numbers < 0)[0])
        raise BadInputError(
            f"Sample {index} has the label {numbers[index]}; labels are whole numbers from 0."
        )
    return numbers.astype(np.int64, copy=False)


def _whole_numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """Truth values, and Python's own whole numbers, count as what they say; nothing else is rounded."""
    if labels.dtype == np.bool_:
        return labels.astype(np.int64)
    if labels.dtype == object and all(isinstance(label, int | np.integer) for label in labels):
        return labels.astype(np.int64)
    raise BadInputError(f"The labels are {_kind_of(labels)}; they must be whole numbers{_way_to(labels)}.")


def _kind_of(labels: NDArray[Any]) -> str:
    return "text" if labels.dtype.kind in "US" else str(labels.dtype)


def _way_to(labels: NDArray[Any]) -> str:
    if labels.dtype.kind in "USO":
        return "; number them with np.unique(labels, return_inverse=True)[1]"
    return ", for example labels.astype('int64')"


def _read_array(images: NDArray[Any]) -> NDArray[Any]:
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.ndim != 4:
        raise BadInputError(
            f"The image array has the shape {images.shape}; it must be (samples, height, width) or "
            "(samples, height, width, channels)."
        )
    if 1 <= images.shape[1] <= _MOST_LIKELY_CHANNELS < images.shape[3]:
        raise BadInputError(
            f"The image array {images.shape} looks like (samples, channels, height, width), but numpy images "
            "are (samples, height, width, channels); give images.transpose(0, 2, 3, 1), or "
            "torch.from_numpy(images)."
        )
    return _as_pixels(images)


def _read_tensor(images: torch.Tensor) -> NDArray[Any]:
    if images.ndim == 3:
        images = images.unsqueeze(1)
    shape = tuple(images.shape)
    if images.ndim != 4:
        raise BadInputError(
            f"The image tensor has the shape {shape}; it must be (samples, height, width) or "
            "(samples, channels, height, width)."
        )
    if 1 <= shape[3] <= _MOST_LIKELY_CHANNELS < min(shape[1:3]):
        raise BadInputError(
            f"The image tensor {shape} looks like (samples, height, width, channels), but tensors are "
            "(samples, channels, height, width); give images.permute(0, 3, 1, 2), or images.numpy()."
        )
    images = images.detach().cpu().permute(0, 2, 3, 1)
    return _as_pixels((images.float() if images.is_floating_point() else images).numpy())


def _as_pixels(images: NDArray[Any]) -> NDArray[Any]:
    """uint8 stays uint8 and floating values become float32; other types do not say what they mean."""
    if 0 in images.shape[1:]:
        raise BadInputError(
            f"The images have the shape {images.shape[1:]}, which has no pixels; give images of at least one "
            "pixel."
        )
    if images.dtype == np.uint8:
        return images
    if np.issubdtype(images.dtype, np.floating):
        with np.errstate(over="ignore"):  # What float32 cannot hold becomes infinite, and is refused as that.
            return images.astype(np.float32, copy=False)
    raise BadInputError(
        f"Images of type {images.dtype} are not supported; give uint8 (0 to 255) or floating-point values, "
        "which are not rescaled."
    )


def range_warning(images: NDArray[Any]) -> str | None:
    """Says that floating images look like bytes that nobody has scaled; a few images tell."""
    largest = float(images.max())
    if images.dtype == np.uint8 or largest <= _LARGEST_USUAL:
        return None
    return (
        f"The images are floating-point values up to {largest:.6g} and are not rescaled; if they range from "
        "0 to 255, give them as uint8 or divide them by 255."
    )
