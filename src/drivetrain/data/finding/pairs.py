"""Recognises images with masks."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath

from drivetrain.core.wording import count_of
from drivetrain.data.files.decode import IMAGE_SUFFIXES, BadSampleError, naming_bad_sample
from drivetrain.data.files.folder_files import files_below, first_names
from drivetrain.data.finding.candidate import Candidate, described_splits, sentences_left_out
from drivetrain.data.finding.found_data import FoundData
from drivetrain.data.masks.coding import read_class_file
from drivetrain.data.masks.find_pairs import (
    FoundFiles,
    MaskedFile,
    find_masked_files,
    find_owner,
    is_mask_name,
    mask_folders,
    mask_layout,
    owners_by_name,
)
from drivetrain.data.masks.mask_pixels import decode_mask
from drivetrain.data.masks.pages import count_pages, opened

__all__ = ["find_pairs", "find_parted_pairs", "holds_masks", "num_masks_beside"]

_VOLUMES = (".tif", ".tiff")
_FEW = 3
# As many as are opened to say that all are background.
_MOST_MASKS = 10_000


def find_parted_pairs(folder: Path) -> Candidate | None:
    """Images and masks in folders of their own, or a folder for each image."""
    layout = mask_layout(folder)
    if layout is None or not holds_masks(folder):
        return None
    where = "in folders for images and for masks" if layout == "twin folders" else "in one folder per image"
    return _candidate(folder, find_masked_files(folder), where=where)


def find_pairs(folder: Path) -> Candidate | None:
    """Images with masks in any layout."""
    parted = find_parted_pairs(folder)
    if parted is not None:
        return parted
    if not num_masks_beside(_images_below(folder)):
        return None
    return _candidate(folder, find_masked_files(folder), where="each mask beside its image")


def holds_masks(folder: Path) -> bool:
    """Whether masks lie in folders of their own, and these hold images and not bounding boxes as text."""
    return any(_images_below(path) for path in mask_folders(folder))


def num_masks_beside(names: Iterable[str]) -> int:
    """How many of some image files are called like the masks of others, as x_mask.png is of x.png."""
    stems = [PurePosixPath(name).with_suffix("").as_posix() for name in names]
    masks = [stem for stem in stems if is_mask_name(stem)]
    if not masks:
        return 0
    owners = owners_by_name(set(stems) - set(masks))
    return sum(find_owner(mask, owners) is not None for mask in masks)


def _images_below(folder: Path) -> list[str]:
    return [name for name in files_below(folder) if name.lower().endswith(IMAGE_SUFFIXES)]


def _candidate(folder: Path, files: FoundFiles, *, where: str) -> Candidate:
    every = [file for part in files.splits.values() for file in part]
    pages = _pages(every)
    images = described_splits(
        {split: len(part) for split, part in files.splits.items()},
        noun="TIFF file of many images" if pages > len(every) else "image",
    )
    sentence = f"{folder} holds {images} with masks{_objects(every)}, {where}{_named_classes(folder)}."
    return Candidate(
        found=FoundData(
            dataset="mask-folder",
            data_dir=folder,
            sentence=sentence,
            left_out=tuple(sentences_left_out(files.others, files.warnings)),
        ),
        holding=f"{count_of(len(every), 'image')} with masks",
        num_images=pages,
        all_background=partial(_are_background, folder, every),
    )


def _objects(files: Sequence[MaskedFile]) -> str:
    count = sum(len(file.masks) for file in files if file.is_by_object)
    return f" for each of {count} objects" if count else ""


def _named_classes(folder: Path) -> str:
    named = read_class_file(folder)
    if named is None:
        return ""
    return f", of {len(named.names)} classes ({first_names([*named.names], most=3)})"


def _are_background(folder: Path, files: Sequence[MaskedFile]) -> str | None:
    """A sentence if every pixel of all masks is 0; the first mask with another value ends the search."""
    masks = [mask for file in files for mask in file.masks]
    if len(masks) > _MOST_MASKS or not all(map(_is_background, masks)):
        return None
    return (
        f"{folder} holds masks of background only: every pixel of the {count_of(len(masks), 'mask')} has "
        "the value 0, so there is nothing to learn; export masks with another value for each other class."
    )


def _is_background(path: str) -> bool:
    try:
        with naming_bad_sample(path), opened(path, whole=True) as image:
            for page in range(count_pages(image)):
                image.seek(page)
                if decode_mask(image).is_object().any():
                    return False
    except BadSampleError:
        return False  # The reader names files that cannot be read.
    return True


def _pages(files: Sequence[MaskedFile]) -> int:
    """The images, as far as a few headers tell: each page of a TIFF file is one."""
    volumes = [file.image for file in files if file.image.lower().endswith(_VOLUMES)][:_FEW]
    total = 0
    for path in volumes:
        with suppress(BadSampleError), naming_bad_sample(path), opened(path, whole=False) as image:
            total += count_pages(image) - 1
    return len(files) + total
