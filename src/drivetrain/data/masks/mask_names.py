"""Which mask belongs to which image, by their names."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

__all__ = ["MaskOwner", "find_owner", "is_mask_name", "owners_by_name"]

_MASK_WORD = r"(?:masks?|labels?|annotations?|gt|seg|segmentation)"
_IMAGE_WORD = r"(?:images?|img)"
_ENDS_AS_MASK = re.compile(rf"(?P<own>.+?)[_-]{_MASK_WORD}(?:[_-]?(?P<number>\d+))?", re.IGNORECASE)
_BEGINS_AS_MASK = re.compile(rf"{_MASK_WORD}[_-](?P<own>.+)", re.IGNORECASE)
_ENDS_AS_IMAGE = re.compile(rf"(?P<own>.+?)[_-]{_IMAGE_WORD}", re.IGNORECASE)
_BEGINS_AS_IMAGE = re.compile(rf"{_IMAGE_WORD}[_-](?P<own>.+)", re.IGNORECASE)


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
    """Images by what masks may call them: their own names, and those without the word `image`."""
    names = list(images)
    owners = {name: name for name in names}
    for name in names:
        for form in (_ENDS_AS_IMAGE, _BEGINS_AS_IMAGE):
            match = form.fullmatch(PurePosixPath(name).name)
            if match is not None:
                owners.setdefault(_beside(name, match["own"]), name)
    return owners


def find_owner(mask: str, owners: Mapping[str, str]) -> MaskOwner | None:
    """The image of a mask called as the image, x_mask, x_mask_3 or mask_x, or in a folder called as it."""
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
