"""`--dataset mask-folder`: image files with masks that say the class of each pixel."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.data_dir import existing_folder
from drivetrain.data.files.kept_scans import KeptScan
from drivetrain.data.masks.coding import MaskCoding, NamedClasses, find_coding, object_coding, read_class_file
from drivetrain.data.masks.find_pairs import FoundFiles, find_masked_files
from drivetrain.data.masks.mask_advice import (
    ClassesAsked,
    advise,
    advise_numbered,
    advise_on_animations,
    advise_on_dark_images,
    describe_outside,
)
from drivetrain.data.masks.mask_pixels import FoundValues, HeldPixels
from drivetrain.data.masks.masked_images import MaskedSplits
from drivetrain.data.masks.page_images import MaskFolderImages
from drivetrain.data.masks.scan import Look, MaskScan, Sample, as_record, from_record
from drivetrain.data.source import DataSpec

__all__ = ["open_mask_folder"]

_WHITE = 255


def open_mask_folder(
    data_dir: str | None,
    *,
    channels: int | None = None,
    num_classes: int | None = None,
    on_bad_sample: str = "error",
    white_level: int | None = None,
) -> MaskedSplits:
    """Finds and scans the images and masks of a folder; they are decoded when they are used."""
    if channels not in (None, 1, 3):
        raise BadInputError(
            f"--channels {channels} is not supported: image files are read in colour (--channels 3) or grey "
            "(--channels 1)."
        )
    folder = existing_folder(data_dir, dataset="mask-folder", holding="images and masks")
    found = find_masked_files(folder)
    decoded = HeldPixels()
    samples = _scanned(folder, found, MaskScan(white_level=white_level, held=decoded))
    seen = [look for part in samples.values() for _, look in part]
    if on_bad_sample == "error":
        _refuse_unreadable(seen)
    _require_16_bits(seen, white_level)
    named = read_class_file(folder)
    asked = ClassesAsked(num_classes=num_classes, is_named=named is not None)
    coding = _find_coding(found, seen, folder=folder, named=named, num_classes=num_classes)
    if on_bad_sample == "error":
        _refuse_outside(seen, coding, asked=asked)
    depth = channels or (3 if any(look.has_colour for look in seen) else 1)
    read = partial(
        MaskFolderImages, coding=coding, channels=depth, asked=asked, white_level=white_level, decoded=decoded
    )
    sources = {
        split: read([file for file, _ in part], sizes=_sizes(part, seen))
        for split, part in samples.items()
        if part
    }
    return MaskedSplits(
        train=sources["train"],
        validation=sources.get("validation"),
        test=sources.get("test"),
        spec=replace(_spec(coding, sources.values(), channels=depth), white_level=white_level),
        warnings=[*found.warnings, *_advice(samples, coding, asked=asked, white_level=white_level)],
    )


def _advice(
    samples: Mapping[str, Sequence[Sample]],
    coding: MaskCoding,
    *,
    asked: ClassesAsked,
    white_level: int | None,
) -> list[str]:
    every = [sample for part in samples.values() for sample in part]
    seen = [look for _, look in every]
    warnings = [*advise(seen, coding, num_classes=asked.num_classes), *advise_on_animations(every)]
    if white_level is None:
        warnings += advise_on_dark_images(seen)
    if asked.num_classes is None and not asked.is_named:
        warnings += advise_numbered(every, coding)
    return warnings


def _scanned(folder: Path, found: FoundFiles, scan: MaskScan) -> dict[str, list[Sample]]:
    """The pages of each split with their scan results, new or cached from an earlier run."""
    files = [file for part in found.splits.values() for file in part]
    paths = [path for file in files for path in (file.image, *file.masks)]
    settings = {**scan.settings, "layout": found.layout}
    kept = KeptScan("mask-folder", folder, paths, settings=settings)
    with suppress(LookupError, TypeError, ValueError, AttributeError):
        record = kept.recall()
        return {split: from_record(part, record[split]) for split, part in found.splits.items()}
    samples = {split: scan.look_at_all(part) for split, part in found.splits.items()}
    records = {split: as_record(found.splits[split], part) for split, part in samples.items()}
    if None not in records.values():
        kept.keep(records)
    return samples


def _require_16_bits(seen: Sequence[Look], white_level: int | None) -> None:
    if white_level is not None and not any(look.has_16_bits for look in seen):
        raise BadInputError(
            f"--white-level {white_level} has no effect: no image is 16-bit grey; leave it out."
        )


def _refuse_unreadable(seen: Sequence[Look]) -> None:
    bad = [(look.error, look.lacks_range) for look in seen if look.error is not None]
    if not bad:
        return
    error, lacks_range = bad[0]
    if len(bad) == len(seen):  # --on-bad-sample skip would leave no sample at all.
        raise BadInputError(
            f"{error.name} cannot be read: {error.reason}; save images and masks as PNG or TIFF files with "
            "8 or 16 bits per channel."
        )
    if lacks_range:
        raise BadInputError(
            f"{error.name} cannot be read: {error.reason}; save it with 8 or 16 bits per channel, or use "
            "--on-bad-sample skip to leave out unreadable samples."
        )
    raise BadInputError(str(error))


def _find_coding(
    found: FoundFiles,
    seen: Sequence[Look],
    *,
    folder: Path,
    named: NamedClasses | None,
    num_classes: int | None,
) -> MaskCoding:
    masks = {path: values for look in seen for path, values in look.masks.items()}
    _refuse_grey_jpeg(masks)
    if any(file.is_by_object for files in found.splits.values() for file in files):
        return object_coding(named, num_classes=num_classes)
    if not masks:
        first = next(look.error for look in seen if look.error is not None)
        raise BadInputError(
            f"No mask in --data-dir {folder} can be read (first error: {first.reason}); save the masks as "
            "PNG or TIFF files."
        )
    return find_coding(masks, named=named, num_classes=num_classes)


def _refuse_grey_jpeg(masks: Mapping[str, FoundValues]) -> None:
    lossy = {path: values for path, values in masks.items() if values.kind == "jpeg"}
    grey = [path for path, values in lossy.items() if values.is_lossy_grey]
    if not grey and lossy and not any(_WHITE in values.values for values in lossy.values()):
        grey = list(lossy)
    if grey:
        raise BadInputError(
            f"The mask {grey[0]} is a JPEG file that is not just black and white, and JPEG compression "
            "changes pixel values; export such masks again as PNG from the original annotations."
        )


def _refuse_outside(seen: Sequence[Look], coding: MaskCoding, *, asked: ClassesAsked) -> None:
    if coding.by_object:
        return
    for look in seen:
        for name, values in look.masks.items():
            outside = coding.outside(values)
            if outside is not None:
                said = describe_outside(outside, coding=coding, asked=asked)
                raise BadInputError(f"The mask {name} {said}.")


def _sizes(samples: Sequence[Sample], seen: Sequence[Look]) -> list[tuple[int, int]]:
    """The size of every image; an image without a readable header gets the size of another one."""
    another = next((look.size for look in seen if look.size is not None), (1, 1))
    return [look.size or another for _, look in samples]


def _spec(coding: MaskCoding, sources: Iterable[MaskFolderImages], *, channels: int) -> DataSpec:
    sizes = [source.size(index) for source in sources for index in range(len(source))]
    return DataSpec(
        channels=channels,
        height=max(height for height, _ in sizes),
        width=max(width for _, width in sizes),
        num_classes=len(coding.class_names),
        class_names=coding.class_names,
        image_dtype="uint8",
        normalisation="symmetric",
        task="segmentation",
        mask_values=coding.mask_values,
    )
