"""What a segmentation data set opens as: masked images of each split, before any are held out."""

from dataclasses import dataclass, field

from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.source import DataSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSplits:
    """Masked images, and what the user should know about them.

    Where images differ in size, the height and width of `spec` are those of the largest.
    """

    train: MaskedImages
    validation: MaskedImages | None
    test: MaskedImages | None
    spec: DataSpec
    warnings: list[str] = field(default_factory=list)
