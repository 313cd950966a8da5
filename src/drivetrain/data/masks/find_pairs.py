"""Pairs images with masks: in images/ and masks/, side by side in one folder, or in one folder per image."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Literal

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.data_dir import folder_above, folder_that_works, named
from drivetrain.data.files.decode import IMAGE_SUFFIXES
from drivetrain.data.files.folder_files import SKIPPED, first_names
from drivetrain.data.files.split_folders import SPLIT_NAMES, split_folders
from drivetrain.data.masks.pages import named_page

__all__ = [
    "FoundFiles",
    "ImageFiles",
    "MaskLayout",
    "MaskOwner",
    "MaskedFile",
    "find_masked_files",
    "find_owner",
    "is_called_like_a_part",
    "is_mask_name",
    "list_images",
    "mask_folders",
    "mask_layout",
    "owners_by_name",
]

_MASK_WORD = r"(?:masks?|labels?|annotations?|gt|seg|segmentation)"
_IMAGE_WORD = r"(?:images?|img)"
_ENDS_AS_MASK = re.compile(rf"(?P<own>.+?)[_-]{_MASK_WORD}(?:[_-]?(?P<number>\d+))?", re.IGNORECASE)
_BEGINS_AS_MASK = re.compile(rf"{_MASK_WORD}[_-](?P<own>.+)", re.IGNORECASE)
_ENDS_AS_IMAGE = re.compile(rf"(?P<own>.+?)[_-]{_IMAGE_WORD}", re.IGNORECASE)
_BEGINS_AS_IMAGE = re.compile(rf"{_IMAGE_WORD}[_-](?P<own>.+)", re.IGNORECASE)
_CLASS_FILES = ("classes.txt", "classes.json")
_IMAGE_FOLDERS = ("images", "imgs", "image", "img")
_MASK_FOLDERS = (
    *("masks", "labels", "mask", "label", "annotations", "annotation", "segmentation", "segmentations"),
    *("gt", "ground_truth", "groundtruth", "seg"),
)
_FEW = 3
MaskLayout = Literal["twin folders", "folder per image"]


@dataclass(frozen=True, slots=True)
class MaskOwner:
    """The image a mask belongs to; `is_one_of_many` where the mask shows one object of the image."""

    image: str
    is_one_of_many: bool


def is_mask_name(stem: str) -> bool:
    """Whether a file among images and masks is a mask, as x_mask, x_gt_2 or mask_x are."""
    name = PurePosixPath(stem).name
    return any(form.fullmatch(name) is not None for form in (_ENDS_AS_MASK, _BEGINS_AS_MASK))


def owners_by_name(images: Iterable[str]) -> dict[str, str]:
    """Maps the names by which masks may refer to images (with or without the word `image`) to the images."""
    names = list(images)
    owners = {name: name for name in names}
    for name in names:
        for form in (_ENDS_AS_IMAGE, _BEGINS_AS_IMAGE):
            match = form.fullmatch(PurePosixPath(name).name)
            if match is not None:
                owners.setdefault(_beside(name, match["own"]), name)
    return owners


def find_owner(mask: str, owners: Mapping[str, str]) -> MaskOwner | None:
    """The image of a mask named like it, x_mask, x_mask_3 or mask_x, or lying in a folder of its name."""
    if mask in owners:
        return MaskOwner(owners[mask], False)
    name = PurePosixPath(mask).name
    for form in (_ENDS_AS_MASK, _BEGINS_AS_MASK):
        match = form.fullmatch(name)
        image = None if match is None else owners.get(_beside(mask, match["own"]))
        if match is not None and image is not None:
            return MaskOwner(image, match.groupdict().get("number") is not None)
    folder = PurePosixPath(mask).parent.as_posix()
    return MaskOwner(owners[folder], True) if folder in owners else None


def _beside(name: str, other: str) -> str:
    return PurePosixPath(name).with_name(other).as_posix()


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Image files below a folder, by path without suffix."""

    root: Path
    by_stem: dict[str, str]

    def of_kind(self, *, masks: bool) -> "ImageFiles":
        """Those that are masks by their names, or those that are not."""
        return ImageFiles(
            self.root, {stem: name for stem, name in self.by_stem.items() if is_mask_name(stem) is masks}
        )

    def path(self, stem: str) -> str:
        """Where a file is."""
        return str(self.root / self.by_stem[stem])

    def paths(self) -> list[str]:
        """Where all of them are."""
        return [self.path(stem) for stem in self.by_stem]


def list_images(root: Path, found: "FoundFiles") -> ImageFiles:
    """All image files below a folder; adds the other files and a warning about them to `found`."""
    by_stem: dict[str, str] = {}
    skipped: list[str] = []
    for name in _files_below(root):
        if not name.lower().endswith(IMAGE_SUFFIXES):
            skipped += [] if name in _CLASS_FILES else [name]
            continue
        stem = PurePosixPath(name).with_suffix("").as_posix()
        if stem in by_stem:
            raise BadInputError(
                f"--data-dir: {root} contains both {by_stem[stem]} and {name}; rename or remove one of "
                "them, because masks are matched to images by file name without extension."
            )
        by_stem[stem] = name
    if skipped:
        found.others += skipped
        found.warnings.append(f"Files in {root} {SKIPPED} ({len(skipped)} in all): {first_names(skipped)}.")
    return ImageFiles(root, by_stem)


def _files_below(root: Path) -> list[str]:
    """Paths of all files that are not hidden, sorted."""
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        prefix = Path(folder).relative_to(root)
        found += [(prefix / name).as_posix() for name in names if not name.startswith(".")]
    return sorted(found)


@dataclass(frozen=True, slots=True)
class MaskedFile:
    """An image file and its masks: one of all classes, or one for each object.

    Where files have several pages, each is an image: `page`, from 0, of the file and of all its masks.
    """

    image: str
    masks: tuple[str, ...]
    is_by_object: bool
    page: int | None = None

    @property
    def name(self) -> str:
        """What a message calls the image."""
        return named_page(self.image, self.page)

    def mask_name(self, mask: str) -> str:
        """What a message calls one of the masks."""
        return named_page(mask, self.page)


@dataclass(slots=True)
class FoundFiles:
    """The images of each split, sorted by name, files that are no images, and warnings about the folder."""

    splits: dict[str, tuple[MaskedFile, ...]]
    others: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def layout(self) -> str:
        """A digest of which masks belong to which images; the same files may be paired in several ways."""
        parts = [
            (split, [(len(file.masks), file.is_by_object) for file in part])
            for split, part in self.splits.items()
        ]
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def find_masked_files(folder: Path) -> FoundFiles:
    """The images of DIR/train, DIR/val and DIR/test, or of DIR alone, each with its masks."""
    try:
        return _found_or_refused(folder)
    except OSError as error:
        raise BadInputError(
            f"--data-dir: {error.filename} cannot be read ({error.strerror}); check its permissions, or name "
            "another folder."
        ) from error


def _found_or_refused(folder: Path) -> FoundFiles:
    try:
        found = _find(folder)
    except BadInputError:
        _refuse_wrong_level(folder)
        raise
    if not found.splits.get("train"):
        _refuse_wrong_level(folder)
        raise BadInputError(
            f"--data-dir {folder} contains no images with masks; arrange the files like "
            f"{folder}/images/1.png and {folder}/masks/1.png, or like {folder}/1.png and {folder}/1_mask.png."
        )
    return found


def _refuse_wrong_level(folder: Path) -> None:
    """Raises an error that names the right folder, if this one is not a data set but one nearby is."""
    if _has_form(folder):
        return
    above = folder_above(folder, _has_form) if is_called_like_a_part(folder) else None
    meant = above or folder_that_works(folder, _has_form)
    if meant is not None:
        raise BadInputError(
            f"--data-dir {folder} does not contain images with masks in a known layout, but --data-dir "
            f"{meant} does; use that folder."
        )


def is_called_like_a_part(folder: Path) -> bool:
    """Whether a folder has the name of one for the images, the masks or a split."""
    parts = {*_IMAGE_FOLDERS, *_MASK_FOLDERS, *SPLIT_NAMES}
    return named(folder).name.lower() in parts


def mask_layout(folder: Path) -> MaskLayout | None:
    """How a folder's folders part images and masks; None where both can only lie side by side in one."""
    place = _split_places(folder)["train"]
    if place.is_twin:
        return None if place.masks is None else "twin folders"
    return "folder per image" if any(map(_is_of_one_image, _folders_in(place.images))) else None


def mask_folders(folder: Path) -> list[Path]:
    """The folders in which the masks of the training images lie, if these are folders of their own."""
    place = _split_places(folder)["train"]
    if place.is_twin:
        return [] if place.masks is None else [place.masks]
    places = [_place(path) for path in _folders_in(place.images)]
    return [below.masks for below in places if below.is_twin and below.masks is not None]


def _has_form(folder: Path) -> bool:
    """Whether a folder seems to contain images and masks, judged by the names of a few entries."""
    place = _split_places(folder)["train"]
    if place.is_twin:
        return place.masks is not None
    folders = islice((path for path in place.images.iterdir() if path.is_dir()), _FEW)
    if any(_is_of_one_image(path) and _holds_one_file(_place(path).images) for path in folders):
        return True
    return any(path.is_file() and is_mask_name(path.stem) for path in place.images.iterdir())


def _holds_one_file(folder: Path) -> bool:
    return len([*islice(folder.iterdir(), 2)]) == 1


@dataclass(frozen=True, slots=True)
class _Place:
    """The folders of images and masks; unless `is_twin`, both lie side by side in `images`."""

    images: Path
    masks: Path | None
    is_twin: bool


def _find(folder: Path) -> FoundFiles:
    found = FoundFiles({})
    for split, place in _split_places(folder).items():
        if split == "test" and place.masks is None and place.is_twin:
            found.warnings.append(
                f"{place.images} has no masks and is not used; run `drivetrain predict` on such images."
            )
            continue
        found.splits[split] = tuple(_pairs(place, found))
    return found


def _split_places(folder: Path) -> dict[str, _Place]:
    whole = _place(folder)
    if whole.is_twin and whole.masks is not None:
        below = split_folders(whole.images), split_folders(whole.masks)
        if "train" in below[0] and "train" in below[1]:
            return {split: _Place(path, below[1].get(split), True) for split, path in below[0].items()}
        return {"train": whole}
    splits = split_folders(folder)
    return {split: _place(path) for split, path in splits.items()} if "train" in splits else {"train": whole}


def _place(folder: Path) -> _Place:
    images, masks = (_folder_called(folder, names) for names in (_IMAGE_FOLDERS, _MASK_FOLDERS))
    if images is None:
        return _Place(folder, masks, False)
    return _Place(images, masks, True)


def _folder_called(folder: Path, names: tuple[str, ...]) -> Path | None:
    with os.scandir(folder) as entries:
        found = sorted(entry.name for entry in entries if entry.name.lower() in names and entry.is_dir())
    if len(found) > 1:
        raise BadInputError(f"--data-dir: {folder} contains both {found[0]} and {found[1]}; keep only one.")
    return folder / found[0] if found else None


def _pairs(place: _Place, found: FoundFiles) -> Iterator[MaskedFile]:
    if place.is_twin:
        if place.masks is None:
            raise BadInputError(
                f"--data-dir: there are no masks for {place.images}; put them into "
                f"{place.images.parent}/masks."
            )
        yield from _matched(list_images(place.images, found), list_images(place.masks, found))
        return
    folders = _folders_in(place.images)
    own_folders = [path for path in folders if _is_of_one_image(path)]
    if not own_folders:
        files = list_images(place.images, found)
        yield from _matched(files.of_kind(masks=False), files.of_kind(masks=True))
        return
    others = [path.name for path in folders if path not in own_folders]
    if others:
        found.warnings.append(
            f"Folders in {place.images} without images and masks are skipped: {first_names(others)}."
        )
    for path in own_folders:
        yield _of_one_image(_place(path), found)


def _folders_in(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [folder / name for name in sorted(entry.name for entry in entries if entry.is_dir())]


def _is_of_one_image(folder: Path) -> bool:
    place = _place(folder)
    return place.is_twin and place.masks is not None


def _of_one_image(place: _Place, found: FoundFiles) -> MaskedFile:
    """A folder with one image and a mask for each of its objects."""
    assert place.masks is not None
    images, masks = (list_images(path, found).paths() for path in (place.images, place.masks))
    if len(images) != 1:
        raise BadInputError(
            f"--data-dir: {place.images} contains {len(images)} images, but each image must have its own "
            "folder; keep exactly one image there."
        )
    return MaskedFile(images[0], tuple(masks), True)


def _matched(images: ImageFiles, masks: ImageFiles) -> Iterator[MaskedFile]:
    owners = owners_by_name(images.by_stem)
    own_masks: dict[str, list[str]] = {stem: [] for stem in images.by_stem}
    by_object = {
        stem for stem in images.by_stem if (masks.root / stem).is_dir() and masks.root != images.root
    }
    ownerless: list[str] = []
    for mask in masks.by_stem:
        owner = find_owner(mask, owners)
        if owner is None:
            ownerless.append(masks.path(mask))
            continue
        own_masks[owner.image].append(mask)
        if owner.is_one_of_many:
            by_object.add(owner.image)
    _require_partners(images, ownerless, [stem for stem, own in own_masks.items() if not own], by_object)
    for stem, own in own_masks.items():
        if len(own) > 1 and stem not in by_object:
            raise BadInputError(
                f"--data-dir: {images.path(stem)} has two masks, {masks.path(own[0])} and "
                f"{masks.path(own[1])}; keep one, or name them x_mask_1 and x_mask_2 if each shows one "
                "object."
            )
        yield MaskedFile(images.path(stem), tuple(map(masks.path, own)), stem in by_object)


def _require_partners(
    images: ImageFiles, ownerless: list[str], maskless: list[str], by_object: set[str]
) -> None:
    missing = [images.path(stem) for stem in maskless if stem not in by_object]
    if missing:
        raise BadInputError(
            f"--data-dir: no mask was found for {first_names(missing)}; name each mask like its image "
            "(x.png, or x_mask.png for x.png), or remove images without a mask."
        )
    if ownerless:
        raise BadInputError(
            f"--data-dir: no image was found for the mask {first_names(ownerless)}; add the image or remove "
            "the mask."
        )
