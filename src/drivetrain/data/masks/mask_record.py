"""What a scan of images with masks found, as plain values for a file and back."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from drivetrain.data.masks.pairs import MaskedFile
from drivetrain.data.masks.pixels import FoundValues
from drivetrain.data.masks.scan import Look, Sample

__all__ = ["as_record", "from_record"]

Record = dict[str, Any]

_PLAIN = ("size", "stored_size", "has_colour", "lacks_range", "has_16_bits", "is_animated", "brightest")


def as_record(files: Sequence[MaskedFile], samples: Sequence[Sample]) -> Record | None:
    """The looks at the pages of `files`; None where something could not be read, which may be mended.

    Most masks hold the same few values, so these stand in a list of their own.
    """
    if any(look.error is not None for _, look in samples):
        return None
    places = {file.image: place for place, file in enumerate(files)}
    values: dict[FoundValues, int] = {}

    def masks_of(file: MaskedFile, look: Look) -> list[int | None]:
        found = (look.masks.get(file.mask_name(mask)) for mask in file.masks)
        return [None if one is None else values.setdefault(one, len(values)) for one in found]

    looks = [
        [places[file.image], file.page, [getattr(look, name) for name in _PLAIN], masks_of(file, look)]
        for file, look in samples
    ]
    return {
        "values": [[one.kind, one.values, one.colours, one.is_lossy_grey] for one in values],
        "looks": looks,
    }


def from_record(files: Sequence[MaskedFile], record: Mapping[str, Any]) -> list[Sample]:
    """What `as_record` made a record of."""
    values = [
        FoundValues(kind, tuple(numbers), tuple(colours), is_lossy)
        for kind, numbers, colours, is_lossy in record["values"]
    ]
    return [
        _sample(files[place], page, plain, [None if one is None else values[one] for one in masks])
        for place, page, plain, masks in record["looks"]
    ]


def _sample(
    file: MaskedFile, page: int | None, plain: Sequence[Any], masks: Sequence[FoundValues | None]
) -> Sample:
    sample = file if page is None else replace(file, page=page)
    named = dict(zip(_PLAIN, plain, strict=True))
    sizes = {name: None if named[name] is None else tuple(named[name]) for name in ("size", "stored_size")}
    found = {
        sample.mask_name(mask): one for mask, one in zip(sample.masks, masks, strict=True) if one is not None
    }
    return sample, Look(**{**named, **sizes}, masks=found)
