"""The fingerprint of a data set: what the rules for a recipe look at, as numbers that can be stored."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from drivetrain.catalogue.tasks import TaskName
from drivetrain.data.groups.suggest_groups import SuggestedGroups

__all__ = ["Asymmetry", "Duplicates", "Fingerprint", "ObjectSizes", "Spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Smallest, median and largest of a quantity."""

    smallest: float
    median: float
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asymmetry:
    """How far images differ from their turned copies, as effect sizes: mean over standard deviation.

    Near 0 where left and right (or up and down, or height and width) mean the same, as in microscopy; digits
    and street scenes have large values.
    """

    left_right: float
    up_down: float
    quarter_turn: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSizes:
    """The objects of all classes but the background: diameters in pixels and their number per image."""

    diameter_px: Spread
    per_image: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Images that are there twice: how many, and the first pairs of names."""

    count: int
    first: tuple[tuple[str, str], ...]
    compared: int | None = None
    """Number of images that were compared, where it was not all."""
    compared_with: int | None = None
    """Number of training images that they were compared with, where it was not all."""

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """Reads what `as_json` of a fingerprint wrote."""
        return cls(**{**stored, "first": tuple(tuple(pair) for pair in stored["first"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The measurements of a data set. Shares and colours are between 0 and 1.

    `samples` has the number of images by split: train, and validation and test where the data set has them.
    `measured` is the number of images that were opened; large data sets are sampled.
    """

    dataset: str
    task: TaskName
    samples: dict[str, int]
    measured: int
    channels: int
    bits: int
    height_px: Spread
    width_px: Spread
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...]
    """Training images of each class; of masks, the images that hold any pixel of it."""
    pixel_shares: tuple[float, ...]
    """Of masks: the share of all pixels that each class has; empty otherwise."""
    objects: ObjectSizes | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    asymmetry: Asymmetry | None
    """None where too few independent images were there to tell."""
    unreadable: tuple[str, ...]
    duplicates: Duplicates | None
    """Validation images that are training images too; None where the data set has no validation images."""
    groups: int | None
    """Number of groups by --group-by; None without."""
    read_channels: int = 3
    """Channels in which images are read unless --channels is set; `channels` is 1 if all of them are grey."""
    suggested_groups: SuggestedGroups | None = None
    """None where validation samples are not held out, or --group-by says what belongs together."""
    copies_in_train: Duplicates | None = None
    """Training images that have a copy; None where validation samples are not held out of them."""
    white_level: int | None = None
    """Of 16-bit grey images: the value that was read as white, if not the largest one of 16 bits."""

    def as_json(self) -> dict[str, Any]:
        """As plain data for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """Reads what `as_json` wrote."""
        suggested, copies = stored.get("suggested_groups"), stored.get("copies_in_train")
        objects, duplicates, asymmetry = (stored[key] for key in ("objects", "duplicates", "asymmetry"))
        return cls(
            **{
                **stored,
                "height_px": Spread(**stored["height_px"]),
                "width_px": Spread(**stored["width_px"]),
                "class_names": tuple(stored["class_names"]),
                "class_counts": tuple(stored["class_counts"]),
                "pixel_shares": tuple(stored["pixel_shares"]),
                "objects": objects
                and ObjectSizes(diameter_px=Spread(**objects["diameter_px"]), per_image=objects["per_image"]),
                "mean": tuple(stored["mean"]),
                "std": tuple(stored["std"]),
                "asymmetry": asymmetry and Asymmetry(**asymmetry),
                "unreadable": tuple(stored["unreadable"]),
                "duplicates": duplicates and Duplicates.from_json(duplicates),
                "copies_in_train": copies and Duplicates.from_json(copies),
                "suggested_groups": suggested
                and SuggestedGroups(count=suggested["count"], first=tuple(suggested["first"])),
            }
        )
