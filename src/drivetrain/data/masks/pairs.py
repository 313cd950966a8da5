"""Finds images with masks: in twin folders, beside each other, or in a folder for each image."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.files.near_folders import folder_above, folder_that_works, named
from drivetrain.data.masks.image_listing import ImageFiles, list_images
from drivetrain.data.masks.mask_names import find_owner, is_mask_name, owners_by_name
from drivetrain.data.masks.pages import named_page

__all__ = ["FoundFiles", "MaskedFile", "find_masked_files"]

_IMAGE_FOLDERS = ("images", "imgs", "image", "img")
_MASK_FOLDERS = ("masks", "labels", "mask", "label", "annotations", "annotation", "gt", "segmentation")
_FEW = 3
_SPLITS = {"train": ("train",), "validation": ("val", "validation"), "test": ("test",)}


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
    """The images of each split, sorted by name, and what is odd about the folder."""

    splits: dict[str, tuple[MaskedFile, ...]]
    warnings: list[str] = field(default_factory=list)

    @property
    def layout(self) -> str:
        """Tells apart which masks belong to which images, where all files are the same."""
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
            f"--data-dir: {error.filename} cannot be read ({error.strerror}); name a folder that can be."
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
            f"--data-dir {folder} holds no images with masks; it must be like {folder}/images/1.png and "
            f"{folder}/masks/1.png, or {folder}/1.png and {folder}/1_mask.png."
        )
    return found


def _refuse_wrong_level(folder: Path) -> None:
    """Names the folder that was meant, where this one has not the form of a data set and another has."""
    if _has_form(folder):
        return
    above = folder_above(folder, _has_form) if _is_called_like_a_part(folder) else None
    meant = above or folder_that_works(folder, _has_form)
    if meant is not None:
        raise BadInputError(
            f"--data-dir {folder} does not hold images with masks in any known form, but --data-dir {meant} "
            "does."
        )


def _is_called_like_a_part(folder: Path) -> bool:
    """Whether a folder has the name of one for the images, the masks or a split."""
    parts = {*_IMAGE_FOLDERS, *_MASK_FOLDERS, *(name for names in _SPLITS.values() for name in names)}
    return named(folder).name.lower() in parts


def _has_form(folder: Path) -> bool:
    """Whether images and masks seem to lie in a folder, by the names of a few files and folders."""
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
    """Where images lie and where their masks do; without a twin folder the two lie beside each other."""

    images: Path
    masks: Path | None
    is_twin: bool


def _find(folder: Path) -> FoundFiles:
    found = FoundFiles({})
    for split, place in _split_places(folder).items():
        if split == "test" and place.masks is None and place.is_twin:
            found.warnings.append(
                f"{place.images} has no masks and is left out; `drivetrain predict` takes such images."
            )
            continue
        found.splits[split] = tuple(_pairs(place, found.warnings))
    return found


def _split_places(folder: Path) -> dict[str, _Place]:
    whole = _place(folder)
    if whole.is_twin and whole.masks is not None:
        below = _by_split(whole.images), _by_split(whole.masks)
        if "train" in below[0] and "train" in below[1]:
            return {split: _Place(path, below[1].get(split), True) for split, path in below[0].items()}
        return {"train": whole}
    splits = _by_split(folder)
    return {split: _place(path) for split, path in splits.items()} if "train" in splits else {"train": whole}


def _by_split(folder: Path) -> dict[str, Path]:
    found = {
        split: [folder / name for name in names if (folder / name).is_dir()]
        for split, names in _SPLITS.items()
    }
    if len(found["validation"]) > 1:
        raise BadInputError(f"--data-dir: {folder} holds both val and validation; keep one of the two.")
    return {split: paths[0] for split, paths in found.items() if paths}


def _place(folder: Path) -> _Place:
    images, masks = (_folder_called(folder, names) for names in (_IMAGE_FOLDERS, _MASK_FOLDERS))
    if images is None:
        return _Place(folder, masks, False)
    return _Place(images, masks, True)


def _folder_called(folder: Path, names: tuple[str, ...]) -> Path | None:
    found = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name.lower() in names)
    if len(found) > 1:
        raise BadInputError(
            f"--data-dir: {folder} holds both {found[0]} and {found[1]}; keep one of the two."
        )
    return folder / found[0] if found else None


def _pairs(place: _Place, warnings: list[str]) -> Iterator[MaskedFile]:
    if place.is_twin:
        if place.masks is None:
            raise BadInputError(
                f"--data-dir: {place.images} has no masks; put them into {place.images.parent}/masks."
            )
        yield from _matched(list_images(place.images, warnings), list_images(place.masks, warnings))
        return
    folders = sorted(path for path in place.images.iterdir() if path.is_dir())
    own_folders = [path for path in folders if _is_of_one_image(path)]
    if not own_folders:
        files = list_images(place.images, warnings)
        yield from _matched(files.of_kind(masks=False), files.of_kind(masks=True))
        return
    others = [path.name for path in folders if path not in own_folders]
    if others:
        warnings.append(
            f"{place.images} also holds {first_names(others)}, without images and masks; left out."
        )
    for path in own_folders:
        yield _of_one_image(_place(path), warnings)


def _is_of_one_image(folder: Path) -> bool:
    place = _place(folder)
    return place.is_twin and place.masks is not None


def _of_one_image(place: _Place, warnings: list[str]) -> MaskedFile:
    """A folder with one image and a mask for each of its objects."""
    assert place.masks is not None
    images, masks = (list_images(path, warnings).paths() for path in (place.images, place.masks))
    if len(images) != 1:
        raise BadInputError(
            f"--data-dir: {place.images} holds {len(images)} images; where each image has its own folder, "
            "keep one there."
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
                f"--data-dir: {images.path(stem)} has the masks {masks.path(own[0])} and "
                f"{masks.path(own[1])}; keep one, or number them as x_mask_1 and x_mask_2 where each shows "
                "one object."
            )
        yield MaskedFile(images.path(stem), tuple(map(masks.path, own)), stem in by_object)


def _require_partners(
    images: ImageFiles, ownerless: list[str], maskless: list[str], by_object: set[str]
) -> None:
    missing = [images.path(stem) for stem in maskless if stem not in by_object]
    if missing:
        raise BadInputError(
            f"--data-dir: no mask is there for {first_names(missing)}; name masks as their images, or "
            "x_mask.png for x.png, and remove images without one."
        )
    if ownerless:
        raise BadInputError(
            f"--data-dir: no image is there for the mask {first_names(ownerless)}; add the image or remove "
            "the mask."
        )
