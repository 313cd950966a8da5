"""A source: a data set, as samples that can be fetched by index."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.input_kinds import InputKind, describe_input
from drivetrain.catalogue.tasks import DEFAULT_TASK, TaskName, task_info
from drivetrain.core.errors import BadInputError

ImageDtype = Literal["uint8", "float32"]
Normalisation = Literal["unit", "standardise", "imagenet", "symmetric", "per-channel"]
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
CHUNK_BYTES = 16 * 2**20
IGNORED = 255
"""The label of pixels that count nowhere. Where there are some, fewer than 256 classes are left."""

_TUPLES = ("class_names", "mean", "std", "ignored_classes")


@runtime_checkable
class Source(Protocol):
    """Samples by index: the same index always gives the same sample, whatever the rest of the batch is.

    Loader workers fetch too, so a source must be picklable.
    """

    def __len__(self) -> int: ...

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Images (samples, height, width, channels) in uint8 or float32, and their labels.

        A row of a table is an image of one pixel with a channel for each feature, and a signal is an image of
        one line of pixels, both in float32. A label is a class (int64), or of segmentation a mask (height,
        width, label channels) in uint8.
        """
        ...


@runtime_checkable
class AugmentingSource(Source, Protocol):
    """A source that augments training images while it decodes them, if `augments_at_decode` is true."""

    @property
    def augments_at_decode(self) -> bool:
        """Whether training is to use `fetch_augmented`."""
        ...

    def fetch_augmented(
        self, indices: NDArray[np.int64], passes: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples at `indices`, augmented as their passes over the data determine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpec:
    """The shape of a source's samples; a run directory keeps it, so that prediction needs no data set.

    Where `normalisation` is "per-channel", `mean` and `std` hold a number for each channel.
    Where `short_side` is set, samples are the middle of image files whose short side was scaled to it.
    Of segmentation, `mask_values` is how each class is written in mask files (one grey value, or a colour),
    `tile`, where set, the side of the tiles that training cuts out of images of any size, and `white_level`,
    where set, the value of grey image files of 16 bits that is white. `ignored_classes` are the classes of
    the masks whose pixels have the label `IGNORED`; they are not among `class_names`. Rows of a table have
    their features as channels of one pixel, signals their values as one line of pixels (`input_kind`).
    """

    channels: int
    height: int
    width: int
    num_classes: int
    class_names: tuple[str, ...]
    image_dtype: ImageDtype
    normalisation: Normalisation = "unit"
    short_side: int | None = None
    task: TaskName = DEFAULT_TASK
    mask_values: tuple[tuple[int, ...], ...] = ()
    tile: int | None = None
    white_level: int | None = None
    input_kind: InputKind = "image"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    ignored_classes: tuple[str, ...] = ()

    @property
    def ignores_pixels(self) -> bool:
        """Whether labels may be `IGNORED`."""
        return bool(self.ignored_classes)

    @property
    def label_values(self) -> int:
        """How many values a label may have: one for each class, and `IGNORED`."""
        return self.num_classes + self.ignores_pixels

    @property
    def input_words(self) -> str:
        """The samples in words, as `rows of 13 features`."""
        return describe_input(self.input_kind, channels=self.channels, height=self.height, width=self.width)

    @property
    def image_bytes(self) -> int:
        """Bytes of one image as the source gives it."""
        return self.channels * self.height * self.width * np.dtype(self.image_dtype).itemsize

    @property
    def has_dense_labels(self) -> bool:
        """Whether a label is a mask with a class for each pixel; else it is the class of the whole image."""
        return task_info(self.task).has_dense_labels

    @property
    def channel_values(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of each channel, of pixels from 0 to 1."""
        if self.normalisation == "per-channel":
            return self.mean, self.std
        assert self.normalisation == "imagenet", "normalised without values per channel"
        return IMAGENET_MEAN, IMAGENET_STD

    def with_num_classes(self, num_classes: int) -> Self:
        """The same samples for a model of more classes; the added ones are called by their number."""
        added = tuple(str(index) for index in range(len(self.class_names), num_classes))
        return replace(self, num_classes=num_classes, class_names=self.class_names + added)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        lists = {
            "class_names": list(self.class_names),
            "mask_values": [list(v) for v in self.mask_values],
            "mean": list(self.mean),
            "std": list(self.std),
            "ignored_classes": list(self.ignored_classes),
        }
        return {**asdict(self), **lists}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """What `to_json` wrote."""
        mask_values = tuple(tuple(value) for value in values.get("mask_values", ()))
        tuples = {key: tuple(values.get(key, ())) for key in _TUPLES}
        return cls(**{**values, **tuples, "mask_values": mask_values})


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSample:
    """A sample that cannot be read and is left out: where it was, what it is called, what is wrong."""

    split: str
    index: int
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSplits:
    """The sources of one training run, and warnings about how they were made."""

    train: Source
    validation: Source | None
    test: Source | None
    spec: DataSpec
    warnings: list[str] = field(default_factory=list)
    bad_samples: tuple[BadSample, ...] = ()


@dataclass(slots=True, kw_only=True)
class ArraySource:
    """Samples that lie in memory: images (samples, height, width, channels) and one label each.

    The arrays may move to memory that ranks share (`held_once.py`); their values stay.
    """

    images: NDArray[Any]
    labels: NDArray[np.int64]
    input_kind: InputKind = "image"

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The samples at `indices`."""
        return np.ascontiguousarray(self.images[indices]), self.labels[indices]


@dataclass(frozen=True, slots=True)
class SubsetSource:
    """Some samples of another source, in the order of `indices`."""

    source: Source
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples at `indices` of the subset."""
        return self.source.fetch(self.indices[indices])

    @property
    def input_kind(self) -> InputKind:
        """The kind of the other source's samples."""
        return input_kind_of(self.source)

    @property
    def augments_at_decode(self) -> bool:
        """Whether the other source changes training images while it decodes them."""
        return bool(getattr(self.source, "augments_at_decode", False))

    def fetch_augmented(
        self, indices: NDArray[np.int64], passes: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples at `indices` of the subset, changed as it belongs to their passes over the samples."""
        assert isinstance(self.source, AugmentingSource), "the source does not augment"
        return self.source.fetch_augmented(self.indices[indices], passes)


def input_kind_of(source: Source) -> InputKind:
    """What the samples of a source are; a source that does not say so has images."""
    kind: InputKind = getattr(source, "input_kind", "image")
    return kind


def index_chunks(samples: int, *, sample_bytes: int) -> Iterator[NDArray[np.int64]]:
    """All indices in order, in pieces of bounded memory: a source is read whole through these."""
    per_chunk = max(1, CHUNK_BYTES // max(1, sample_bytes))
    for first in range(0, samples, per_chunk):
        yield np.arange(first, min(first + per_chunk, samples), dtype=np.int64)


def require_finite(images: NDArray[Any], *, kind: InputKind = "image") -> None:
    """Refuses floating-point values that are NaN or infinite, by the number of the sample."""
    for chunk in index_chunks(len(images), sample_bytes=images[:1].nbytes):
        _require_finite(images[chunk[0] : chunk[-1] + 1], numbers=chunk, kind=kind)


def require_finite_fetch(images: NDArray[Any], *, source: Source, indices: NDArray[np.int64]) -> None:
    """The same for samples that a source has given; arrays were looked at when they came."""
    while isinstance(source, SubsetSource):
        indices = source.indices[indices]
        source = source.source
    if not isinstance(source, ArraySource):
        _require_finite(images, numbers=indices, kind=input_kind_of(source))


def _require_finite(images: NDArray[Any], *, numbers: NDArray[np.int64], kind: InputKind) -> None:
    if images.dtype.kind != "f" or np.isfinite(images).all():
        return
    is_wrong = ~np.isfinite(images).reshape(len(images), -1).all(axis=1)
    sample = numbers[is_wrong][0]
    if kind == "table":
        column = np.flatnonzero(~np.isfinite(images[is_wrong][0]).reshape(-1))[0]
        raise BadInputError(
            f"Row {sample} of the table contains a value in column {column} that is not finite (NaN or "
            "infinity); fill it in, or leave the row out."
        )
    what, values = ("signal", "values") if kind == "signal" else ("image", "pixels")
    raise BadInputError(
        f"The {what} of sample {sample} contains {values} that are not finite (NaN or infinity); "
        "correct the sample or leave it out."
    )


def require_labels(labels: NDArray[Any], *, num_classes: int, may_ignore: bool = False) -> None:
    """Refuses labels outside 0 to `num_classes` - 1; pixels of masks may be `IGNORED`."""
    if labels.ndim > 1:
        labels = labels[..., 0].reshape(-1)
        labels = labels[labels != IGNORED] if may_ignore else labels
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        wrong = labels[(labels < 0) | (labels >= num_classes)][0]
        raise BadInputError(
            f"A sample has the label {wrong}, but labels must be from 0 to {num_classes - 1}; "
            f"correct the label, or set the number of classes with --num-classes."
        )
