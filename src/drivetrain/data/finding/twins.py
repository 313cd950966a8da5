"""Asks about two folders that seem to hold images and their masks, but are not called so."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import combinations
from os.path import commonprefix
from pathlib import Path, PurePosixPath

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.decode import IMAGE_SUFFIXES, BadSampleError, naming_bad_sample
from drivetrain.data.files.folder_files import class_folders, files_below, holds_images
from drivetrain.data.files.split_folders import split_called
from drivetrain.data.masks.find_pairs import find_owner, is_mask_name, owners_by_name
from drivetrain.data.masks.pages import opened
from drivetrain.data.sources.image_folder import folder_of_classes

__all__ = ["refuse_twins"]

_OF_IMAGES = ("images", "jpegimages", "input", "inputs", "original", "originals", "x")
_OF_MASKS = (
    *("masks", "segmentationclass", "segmentationobject", "target", "targets"),
    *("groundtruth", "groundtruths", "gt", "y"),
)
_OF_MASKS_OF = re.compile(
    r"(?P<own>.+?)[ _-]?(?:masks?|labels?|annot(?:ations?)?|gt|seg(?:mentations?)?)", re.IGNORECASE
)
_MOST_FOLDERS = 12
_NEARLY_ALL = 0.9
_FEW = 3
_MOST_COLOURS = 32
Pair = tuple[str, str]


def refuse_twins(folder: Path) -> None:
    """Refuses to read images and their masks as two classes."""
    for place in dict.fromkeys((folder, folder_of_classes(folder))):
        pair = _pair_in(place)
        if pair is not None:
            raise BadInputError(_question(place, *pair))


def _question(folder: Path, images: str, masks: str) -> str:
    remedy = "rename them to images and masks"
    if split_called(images) is not None:
        own = folder / images
        remedy = f"move them to {own / 'images'} and {own / 'masks'}"
    return (
        f"{images} and {masks} in {folder} seem to hold images and their masks; {remedy}, or add --dataset "
        "image-folder if they are classes."
    )


def _pair_in(folder: Path) -> Pair | None:
    """Two folders of images and masks, by their names, or by the names and pixels of their files."""
    names = class_folders(folder)
    files_in = cache(partial(_images_by_stem, folder))
    for images, masks in _called_so(names):
        if files_in(images) and files_in(masks):
            return images, masks
    for images, masks in _called_like_both(names):
        if _belong_to(files_in(masks), files_in(images)):
            return images, masks
    alike = [name for name in names if split_called(name) is None and holds_images(folder / name)]
    return _alike(alike, files_in) if len(alike) <= _MOST_FOLDERS else None


def _images_by_stem(folder: Path, name: str) -> Mapping[str, str]:
    images = [file for file in files_below(folder / name) if file.lower().endswith(IMAGE_SUFFIXES)]
    return {PurePosixPath(file).with_suffix("").as_posix(): str(folder / name / file) for file in images}


def _called_so(names: tuple[str, ...]) -> Iterator[Pair]:
    """Folders called like train and train_masks, or train and trainannot; those for training first."""
    for name in sorted(names, key=lambda name: not name.lower().startswith("train")):
        match = _OF_MASKS_OF.fullmatch(name)
        if match is not None and match["own"] in names:
            yield match["own"], name


def _called_like_both(names: tuple[str, ...]) -> Iterator[Pair]:
    for images in (name for name in names if _plain(name) in _OF_IMAGES):
        yield from ((images, name) for name in names if _plain(name) in _OF_MASKS)


def _plain(name: str) -> str:
    return re.sub(r"[ _-]", "", name.lower())


def _belong_to(masks: Iterable[str], images: Iterable[str]) -> bool:
    owners = owners_by_name(images)
    owned = [find_owner(mask, owners) is not None for mask in masks]
    return any(owned) and sum(owned) >= _NEARLY_ALL * len(owned)


def _alike(names: list[str], files_in: Callable[[str], Mapping[str, str]]) -> Pair | None:
    """Two folders with files of the same names; where these only count, the pixels must tell masks."""
    for one, other in combinations(names, 2):
        files = files_in(one), files_in(other)
        shared = files[0].keys() & files[1].keys()
        if len(shared) < _NEARLY_ALL * max(map(len, files)) or any(map(is_mask_name, shared)):
            continue
        some = sorted(shared)[:_FEW]
        flat = [{_has_few_colours(part[stem]) for stem in some} for part in files]
        if flat == [{True}, {False}]:
            return other, one
        if flat == [{False}, {True}] or not _are_numbers(shared):
            return one, other
    return None


def _are_numbers(stems: Iterable[str]) -> bool:
    """Whether names only count files, as 001 and image_2 do; those of two classes may be counted alike."""
    begin = len(commonprefix([*stems]))
    return all(stem[begin:].isdecimal() or not stem[begin:] for stem in stems)


def _has_few_colours(path: str) -> bool:
    """Whether an image has as few colours as a mask."""
    try:
        with naming_bad_sample(path), opened(path, whole=True) as image:
            return image.getcolors(_MOST_COLOURS) is not None
    except BadSampleError:
        return False
