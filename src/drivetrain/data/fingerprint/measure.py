"""Measures the fingerprint of a data set: measures a spread of its images, never more than a thousand.

Only the search for copies opens more, and it has a bound of its own (`duplicates.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import background_class
from drivetrain.core.errors import BadInputError
from drivetrain.data.fingerprint.asymmetry import AsymmetryMeter
from drivetrain.data.fingerprint.colours import ColourMeter
from drivetrain.data.fingerprint.duplicates import find_copies, find_duplicates
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.data.fingerprint.looked_at import Look, LookedAt, samples_of, spread_indices
from drivetrain.data.fingerprint.object_sizes import ObjectMeter, spread_of
from drivetrain.data.groups.sample_paths import sample_paths
from drivetrain.data.groups.suggest_groups import SuggestedGroups, suggest_groups
from drivetrain.data.labels import known_labels_of
from drivetrain.data.source import IGNORED, DataSpec, DataSplits

__all__ = ["Measured", "measure"]

MOST_LABELLED, MOST_MASKED = 1000, 200
_BITS = {"uint8": 8, "float32": 32}
_BITS_OF_WHITE_LEVEL = 16


@dataclass(slots=True, kw_only=True)
class Measured:
    """A fingerprint, with some samples and the values of single images and objects, for pictures."""

    fingerprint: Fingerprint
    samples: list[LookedAt]
    brightness: list[float]
    sides_px: list[tuple[float, float]]
    diameters_px: list[float]


@dataclass(slots=True, kw_only=True)
class _Meters:
    """Everything that is measured image by image."""

    spec: DataSpec
    objects: ObjectMeter
    colours: ColourMeter = field(default_factory=ColourMeter)
    asymmetry: AsymmetryMeter = field(default_factory=AsymmetryMeter)
    heights_px: list[float] = field(default_factory=list)
    widths_px: list[float] = field(default_factory=list)
    pixel_counts: NDArray[np.int64]
    images_with: NDArray[np.int64]

    def add(self, looked: LookedAt) -> None:
        self.heights_px.append(looked.size_px[0])
        self.widths_px.append(looked.size_px[1])
        self.colours.add(looked.pixels)
        self.asymmetry.add(looked.pixels, label=looked.label or 0, name=looked.name)
        if looked.mask is not None:
            counts = np.bincount(looked.mask.reshape(-1), minlength=len(self.pixel_counts))
            self.pixel_counts += counts[: len(self.pixel_counts)]
            self.images_with += counts[: len(self.pixel_counts)] > 0
            is_ignored = looked.mask == IGNORED if self.spec.ignores_pixels else False
            self.objects.add(np.where(is_ignored, np.uint8(self.objects.background), looked.mask))


def measure(
    splits: DataSplits,
    *,
    dataset: str,
    groups: int | None = None,
    keeps: Callable[[LookedAt], bool] = lambda _: False,
    refuses_unreadable: bool = False,
) -> Measured:
    """The fingerprint of data from which nothing was held out yet; `keeps` chooses samples for pictures.

    `groups` is the number of groups by --group-by. With `refuses_unreadable`, the first sample that cannot be
    read is bad input.
    """
    spec, dense = splits.spec, splits.spec.has_dense_labels
    samples = samples_of(splits.train, has_dense_labels=dense)
    look, meters = Look(samples, refuses_unreadable=refuses_unreadable), _meters(spec)
    kept: list[LookedAt] = []
    indices = spread_indices(len(samples), most=MOST_MASKED if dense else MOST_LABELLED)
    labels: list[int] = []
    for looked in look.at(indices, what="looking at the images"):
        meters.add(looked)
        labels.append(looked.label or 0)
        if keeps(looked):
            kept.append(looked)
    if not meters.heights_px:
        raise BadInputError(
            f"none of the {len(look.unreadable)} images that were opened can be read, such as "
            f"{look.unreadable[0]}; check the files, for example with `drivetrain data check`."
        )
    counts = meters.images_with if dense else _class_counts(splits, labels=labels)
    return Measured(
        fingerprint=replace(
            _fingerprint(splits, dataset=dataset, meters=meters, look=look, counts=counts),
            groups=groups,
            suggested_groups=_suggested(splits) if groups is None else None,
        ),
        samples=kept,
        brightness=meters.colours.brightness,
        sides_px=[*zip(meters.heights_px, meters.widths_px, strict=True)],
        diameters_px=meters.objects.diameters_px,
    )


def _meters(spec: DataSpec) -> _Meters:
    background = background_class(spec.class_names)
    return _Meters(
        spec=spec,
        objects=ObjectMeter(background=background),
        pixel_counts=np.zeros(spec.num_classes, dtype=np.int64),
        images_with=np.zeros(spec.num_classes, dtype=np.int64),
    )


def _class_counts(splits: DataSplits, *, labels: list[int]) -> NDArray[np.int64]:
    """Training images of each class; an estimate where labels are known only after opening."""
    known = known_labels_of(splits.train)
    if known is not None:
        return np.bincount(known, minlength=splits.spec.num_classes)
    counts = np.bincount(labels, minlength=splits.spec.num_classes)
    scaled: NDArray[np.float64] = np.rint(counts * (len(splits.train) / max(1, len(labels))))
    return scaled.astype(np.int64)


def _fingerprint(
    splits: DataSplits, *, dataset: str, meters: _Meters, look: Look, counts: NDArray[np.int64]
) -> Fingerprint:
    spec, colours = splits.spec, meters.colours
    dense, channels = spec.has_dense_labels, spec.channels
    is_grey = channels == 3 and colours.is_grey
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    duplicates, copies = None, None
    if splits.validation is None:
        copies = find_copies((splits.train, look.samples))
    else:
        validation = samples_of(splits.validation, has_dense_labels=dense)
        duplicates = find_duplicates((splits.train, look.samples), (splits.validation, validation))
    pixels = meters.pixel_counts.sum()
    return Fingerprint(
        dataset=dataset,
        task=spec.task,
        samples={name: len(part) for name, part in parts.items() if part is not None},
        measured=len(meters.heights_px),
        channels=1 if is_grey else channels,
        bits=_bits(spec),
        height_px=spread_of(meters.heights_px),
        width_px=spread_of(meters.widths_px),
        class_names=spec.class_names,
        class_counts=tuple(int(count) for count in counts),
        pixel_shares=tuple(round(float(count / pixels), 5) for count in meters.pixel_counts) if dense else (),
        objects=meters.objects.result() if dense else None,
        mean=colours.mean[:1] if is_grey else colours.mean,
        std=colours.std[:1] if is_grey else colours.std,
        asymmetry=meters.asymmetry.result(),
        unreadable=tuple(look.unreadable),
        duplicates=duplicates,
        groups=None,
        read_channels=channels,
        copies_in_train=copies,
        white_level=spec.white_level,
    )


def _suggested(splits: DataSplits) -> SuggestedGroups | None:
    """What the names of files look like, where validation samples will be held out of them."""
    paths = sample_paths(splits.train, data_dir=None)
    if paths is None or splits.validation is not None:
        return None
    labels = None if splits.spec.has_dense_labels else known_labels_of(splits.train)
    return suggest_groups(paths, labels=labels)


def _bits(spec: DataSpec) -> int:
    return _BITS_OF_WHITE_LEVEL if spec.white_level is not None else _BITS[spec.image_dtype]
