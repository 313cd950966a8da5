"""A user's own data as a source: arrays, tensors, a torch data set, or a function that returns them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import index as as_whole_number
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from drivetrain.catalogue.input_kinds import InputKind, describe_size, plural_of
from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure, import_factory
from drivetrain.data.labels import known_labels_of
from drivetrain.data.source import (
    ArraySource,
    DataSpec,
    DataSplits,
    Source,
    SubsetSource,
    index_chunks,
    input_kind_of,
    require_finite,
)
from drivetrain.data.sources.given_pixels import LOOKED_AT, range_warning, read_labels
from drivetrain.data.sources.given_samples import is_array, read_samples, turned_warning
from drivetrain.recipe.params import InputChoice

# PIL modes whose stored values are not brightness (palette indices, bits, other colour spaces), each with the
# mode that it is converted to.
_READABLE_MODE = {
    "1": "L",
    "P": "RGB",
    "PA": "RGBA",
    "CMYK": "RGB",
    "YCbCr": "RGB",
    "HSV": "RGB",
    "LAB": "RGB",
}
_ARTICLES = {"image": "an image", "table": "a row", "signal": "a signal"}
AsSplits = Callable[[Any, Any], DataSplits]
"""Makes splits of training data and, where they are not None, validation data."""


class DatasetSource:
    """Fetches sample by sample; a sample is a PIL image, or what a batch has without its first dimension."""

    def __init__(self, dataset: Any, *, choice: InputChoice = "auto") -> None:
        self._dataset, self._choice = dataset, choice
        if len(self) == 0:
            raise BadInputError("The data set has no samples; give at least one.")
        self._first, _, self.input_kind = self._sample(0)

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The data set's `classes`, or () if it has none."""
        return tuple(str(name) for name in getattr(self._dataset, "classes", ()))

    def known_labels(self) -> NDArray[np.int64] | None:
        """The data set's `targets`, or None if they may differ from its labels."""
        # A target_transform changes labels after `targets`, so `targets` cannot be trusted then.
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
                f"The data set failed to return sample {index}: {describe_failure(error)}"
            ) from error

    def _matching_sample(self, index: int) -> tuple[NDArray[Any], int]:
        image, label, kind = self._sample(index)
        if (image.shape, image.dtype, kind) != (self._first.shape, self._first.dtype, self.input_kind):
            raise BadInputError(
                f"Sample {index} is {_ARTICLES[kind]} of {_size(image, kind)}, but sample 0 is of "
                f"{_size(self._first, self.input_kind)}; all samples of a data set must have the same size "
                "and type."
            )
        return image, label

    def _sample(self, index: int) -> tuple[NDArray[Any], int, InputKind]:
        sample = self._fetched(index)
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise BadInputError(f"Sample {index} is {_in_words(sample)}; it must be (image, label).")
        try:
            values, kind = _read_sample(sample[0], choice=self._choice)
            return values, _read_label(sample[1]), kind
        except BadInputError as error:
            raise BadInputError(f"Sample {index}: {error}") from error


def _in_words(sample: Any) -> str:
    """Describes what a data set returned instead of a pair."""
    if isinstance(sample, Mapping):
        return f"a {type(sample).__name__} of {', '.join(map(str, sample))}"
    if isinstance(sample, tuple | list):
        return f"a {type(sample).__name__} of {len(sample)}"
    return f"a {type(sample).__name__}"


def _read_sample(sample: Any, *, choice: InputChoice) -> tuple[NDArray[Any], InputKind]:
    if isinstance(sample, Image.Image):
        sample = np.asarray(sample.convert(_READABLE_MODE.get(sample.mode, sample.mode)))
    if not isinstance(sample, np.ndarray | torch.Tensor):
        raise BadInputError(
            f"A {type(sample).__name__} is not an image; give a PIL image, an array or a tensor."
        )
    values, kind = read_samples(sample[None], choice=choice)
    return values[0], kind


def _read_label(label: Any) -> int:
    try:
        number = as_whole_number(label)
    except TypeError:
        raise BadInputError(
            f"The label {label!r} is not a whole number; labels are whole numbers from 0."
        ) from None
    if number < 0:
        raise BadInputError(f"The label {number} is negative; labels are whole numbers from 0.")
    return number


def _size(sample: NDArray[Any], kind: InputKind) -> str:
    height, width, channels = sample.shape
    words = describe_size(kind, channels=channels, height=height, width=width)
    return f"{words} in {sample.dtype}" if kind == "image" else words


def as_source(data: Any, *, choice: InputChoice = "auto") -> Source:
    """A source of (samples, labels) as arrays or tensors, of a torch data set, or of a source itself.

    A table is (samples, features). numpy images are (samples, height, width[, channels]), tensors
    (samples[, channels], height, width). `choice` is `--input-kind`: numpy signals are (samples, length,
    channels), tensors (samples, channels, length), and (samples, length) is a single channel.
    """
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return _array_source(*data.tensors, choice=choice)
    if isinstance(data, tuple | list) and len(data) == 2 and is_array(data[0]) and data[1] is not None:
        return _array_source(*data, choice=choice)
    if isinstance(data, IterableDataset):
        raise BadInputError(
            "An IterableDataset cannot fetch samples by index; give a map-style torch Dataset."
        )
    source = _wrapped(data, choice=choice)
    if len(source) == 0:
        raise BadInputError("The data set has no samples; give at least one.")
    return source


def spec_of(source: Source, *, num_classes: int | None = None) -> DataSpec:
    """Describes a source's samples; without `num_classes`, counts its class names or labels."""
    images, _ = source.fetch(np.zeros(1, dtype=np.int64))
    names = class_names_of(source)
    found = len(names) or count_classes(source, scan=num_classes is None)
    if num_classes is not None and num_classes < found:
        raise BadInputError(
            f"--num-classes {num_classes} is less than the {found} classes of the data; use {found}, or "
            f"number the labels from 0 to {num_classes - 1}."
        )
    names += tuple(str(index) for index in range(len(names), num_classes or found))
    return DataSpec(
        channels=images.shape[3],
        height=images.shape[1],
        width=images.shape[2],
        num_classes=len(names),
        class_names=names,
        image_dtype="uint8" if images.dtype == np.uint8 else "float32",
        input_kind=input_kind_of(source),
    )


def splits_of(
    train: Any, validation: Any = None, *, num_classes: int | None = None, choice: InputChoice = "auto"
) -> DataSplits:
    """Splits of a user's training and optional validation data, each anything that `as_source` takes."""
    source = as_source(train, choice=choice)
    spec = spec_of(source, num_classes=num_classes)
    warnings = _value_warnings(source)
    if validation is None:
        return DataSplits(train=source, validation=None, test=None, spec=spec, warnings=warnings)
    validation_source = as_source(validation, choice=choice)
    validation_spec = spec_of(validation_source, num_classes=num_classes)
    if _form(validation_spec) != _form(spec):
        what = "images" if spec.input_kind == validation_spec.input_kind == "image" else "data"
        raise BadInputError(
            f"The validation {what} are {_form(validation_spec)}, but the training {what} are "
            f"{_form(spec)}; both must have the same size and type."
        )
    most_classes = max(spec.num_classes, validation_spec.num_classes)
    return DataSplits(
        train=source,
        validation=validation_source,
        test=None,
        spec=spec.with_num_classes(most_classes),
        warnings=warnings,
    )


def _value_warnings(source: Source) -> list[str]:
    kind = input_kind_of(source)
    if kind == "table":
        return []
    samples, _ = source.fetch(np.arange(min(LOOKED_AT, len(source)), dtype=np.int64))
    warning = range_warning(samples) if kind == "image" else turned_warning(samples)
    return [] if warning is None else [warning]


def class_names_of(source: Source) -> tuple[str, ...]:
    """The names of the classes, or () if the data set has none."""
    if isinstance(source, SubsetSource):
        return class_names_of(source.source)
    return source.class_names if isinstance(source, DatasetSource) else ()


def count_classes(source: Source, *, scan: bool) -> int:
    """The largest label plus one; 0 if that needs fetching every sample and `scan` is False."""
    labels = known_labels_of(source)
    if labels is not None:
        return int(labels.max()) + 1
    return _scan_largest_label(source) + 1 if scan else 0


def _form(spec: DataSpec) -> str:
    if spec.input_kind == "image":
        return f"{spec.height}x{spec.width}x{spec.channels} {spec.image_dtype}"
    return spec.input_words


def _scan_largest_label(source: Source) -> int:
    image_bytes = source.fetch(np.zeros(1, dtype=np.int64))[0].nbytes
    chunks = index_chunks(len(source), sample_bytes=image_bytes)
    return max(int(source.fetch(indices)[1].max()) for indices in chunks)


def _wrapped(data: Any, *, choice: InputChoice) -> Source:
    if isinstance(data, Subset):
        return SubsetSource(as_source(data.dataset, choice=choice), np.asarray(data.indices, dtype=np.int64))
    if isinstance(data, Source):
        return data
    if isinstance(data, Dataset | Sequence) and not isinstance(data, str | bytes):
        _require_samples(data)
        return DatasetSource(data, choice=choice)
    raise BadInputError(
        f"A {type(data).__name__} is not a data set; give {_what_to_give(data)}(samples, labels) as numpy "
        "arrays or tensors, or a torch Dataset of (sample, label)."
    )


def _what_to_give(data: Any) -> str:
    if isinstance(data, DataLoader):
        return "its .dataset, or "
    return "--data-dir for a folder, or " if isinstance(data, str | PathLike) else ""


def _require_samples(data: Any) -> None:
    """Rejects a tuple or list that contains arrays but is not (images, labels)."""
    if isinstance(data, tuple | list) and any(map(is_array, data)):
        parts = ", ".join(type(part).__name__ for part in data[:4])
        raise BadInputError(
            f"The data are a {type(data).__name__} of {len(data)} ({parts}); give (images, labels) as numpy "
            "arrays or tensors."
        )


def _array_source(samples: Any, labels: Any, *, choice: InputChoice) -> ArraySource:
    values, kind = read_samples(samples, choice=choice)
    numbers = read_labels(labels)
    if len(values) != len(numbers):
        what = plural_of(kind)
        raise BadInputError(
            f"There are {len(values)} {what} but {len(numbers)} labels; each {what[:-1]} needs one label."
        )
    if len(values) == 0:
        raise BadInputError("The data set has no samples; give at least one.")
    require_finite(values, kind=kind)
    return ArraySource(images=values, labels=numbers, input_kind=kind)


def open_external(reference: str, *, data_dir: str | None, seed: int, as_splits: AsSplits) -> DataSplits:
    """Calls a user's factory, which returns DataSplits, (train, validation) or one training data set."""
    factory = import_factory(reference, option="--dataset")
    offered = {"data_dir": data_dir, "seed": seed}
    accepted = {name: value for name, value in offered.items() if _accepts(factory, name)}
    splits = _opened(_call(factory, reference, accepted), as_splits)
    if data_dir is None or "data_dir" in accepted:
        return splits
    ignored = f"--data-dir {data_dir} has no effect: {reference} has no argument data_dir."
    return replace(splits, warnings=[*splits.warnings, ignored])


def _call(factory: Callable[..., Any], reference: str, arguments: dict[str, Any]) -> Any:
    try:
        return factory(**arguments)
    except BadInputError:
        raise
    except Exception as error:
        raise BadInputError(f"--dataset {reference} failed: {describe_failure(error)}") from error


def _opened(result: Any, as_splits: AsSplits) -> DataSplits:
    if isinstance(result, DataSplits):
        return result
    if isinstance(result, tuple) and len(result) == 2 and not is_array(result[0]):
        return as_splits(*result)
    return as_splits(result, None)


def _accepts(factory: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(factory).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD
        or (parameter.name == name and parameter.kind in named)
        for parameter in parameters
    )
