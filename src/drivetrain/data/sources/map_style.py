"""A torch map-style data set of (image, label) as a source."""

from collections.abc import Mapping
from operator import index as as_whole_number
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.data.sources.pixels import read_images

# Modes whose stored values are not the brightness they stand for.
_READABLE_MODE = {
    "1": "L",
    "P": "RGB",
    "PA": "RGBA",
    "CMYK": "RGB",
    "YCbCr": "RGB",
    "HSV": "RGB",
    "LAB": "RGB",
}


class DatasetSource:
    """Fetches sample by sample; images are PIL images, arrays (height, width[, channels]) or tensors."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        if len(self) == 0:
            raise BadInputError("The data set has no samples; give at least one.")
        self._first = self._sample(0)[0]

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The data set's `classes`, where it has them."""
        return tuple(str(name) for name in getattr(self._dataset, "classes", ()))

    def known_labels(self) -> NDArray[np.int64] | None:
        """The data set's `targets`, where they are its labels."""
        if getattr(self._dataset, "target_transform", None) is not None:
            return None
        targets = getattr(self._dataset, "targets", None)
        labels = (
            np.asarray(targets) if isinstance(targets, list | tuple | np.ndarray | torch.Tensor) else None
        )
        if labels is None or labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            return None
        return labels.astype(np.int64)

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The samples at `indices`, one call of the data set each."""
        samples = [self._matching_sample(int(index)) for index in indices]
        images = np.stack([image for image, _ in samples])
        return images, np.array([label for _, label in samples], dtype=np.int64)

    def _fetched(self, index: int) -> Any:
        try:
            return self._dataset[index]
        except Exception as error:
            raise BadInputError(
                f"The data set cannot give sample {index}: {describe_failure(error)}"
            ) from error

    def _matching_sample(self, index: int) -> tuple[NDArray[Any], int]:
        image, label = self._sample(index)
        if (image.shape, image.dtype) != (self._first.shape, self._first.dtype):
            raise BadInputError(
                f"Sample {index} is an image {_shape(image)}, but sample 0 is {_shape(self._first)}; "
                "all images of a data set must have one size and type."
            )
        return image, label

    def _sample(self, index: int) -> tuple[NDArray[Any], int]:
        sample = self._fetched(index)
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise BadInputError(f"Sample {index} is {_in_words(sample)}; it must be (image, label).")
        try:
            return _read_image(sample[0]), _read_label(sample[1])
        except BadInputError as error:
            raise BadInputError(f"Sample {index}: {error}") from error


def _in_words(sample: Any) -> str:
    """What a data set gave in place of a pair."""
    if isinstance(sample, Mapping):
        return f"a {type(sample).__name__} of {', '.join(map(str, sample))}"
    if isinstance(sample, tuple | list):
        return f"a {type(sample).__name__} of {len(sample)}"
    return f"a {type(sample).__name__}"


def _read_image(image: Any) -> NDArray[Any]:
    if isinstance(image, Image.Image):
        image = np.asarray(image.convert(_READABLE_MODE.get(image.mode, image.mode)))
    if not isinstance(image, np.ndarray | torch.Tensor):
        raise BadInputError(f"A {type(image).__name__} is no image; give a PIL image, an array or a tensor.")
    pixels: NDArray[Any] = read_images(image[None])[0]
    return pixels


def _read_label(label: Any) -> int:
    try:
        number = as_whole_number(label)
    except TypeError:
        raise BadInputError(f"The label {label!r} is no whole number.") from None
    if number < 0:
        raise BadInputError(f"The label {number} is negative; labels are whole numbers from 0.")
    return number


def _shape(image: NDArray[Any]) -> str:
    height, width, channels = image.shape
    return f"of {height}x{width} pixels with {channels} channels in {image.dtype}"
