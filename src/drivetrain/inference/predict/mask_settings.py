"""The options of `predict` and `evaluate` on how images are predicted and masks written, and their checks."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

from drivetrain.catalogue.input_kinds import plural_of
from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec
from drivetrain.inference.model.whole_images import size_before_scaling
from drivetrain.recipe.schema import Recipe

__all__ = ["MaskFormat", "MaskSettings"]

MaskFormat = Literal["png", "tiff"]
# At 0.9, tiles are a tenth of their side apart, so each pixel is computed about 100 times.
_MOST_OVERLAP = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskSettings:
    """The options as given; None means the default.

    Defaults: masks as PNG, or as TIFF for files with several pages; overlays; no probabilities.
    """

    mask_format: MaskFormat | None = None
    probabilities: bool | None = None
    overlay: bool | None = None
    flips: bool | None = None
    tile_overlap: float | None = None

    def check(self, recipe: Recipe, spec: DataSpec) -> None:
        """Raises for options that are invalid for this run or have no effect on it."""
        if spec.has_dense_labels:
            self._check_for_masks(recipe, spec)
        else:
            self._refuse_for_classifier()
        if self.flips and spec.input_kind != "image":
            raise BadInputError(
                f"--flips is for images, but RUN was trained on {plural_of(spec.input_kind)}; leave it out."
            )

    def _refuse_for_classifier(self) -> None:
        """Raises for the options that do not apply to image classification."""
        for field in fields(self):
            if field.name != "flips" and getattr(self, field.name) is not None:
                raise BadInputError(
                    f"--{field.name.replace('_', '-')} is for runs that predict masks, but RUN classifies "
                    f"whole images; leave it out."
                )

    def _check_for_masks(self, recipe: Recipe, spec: DataSpec) -> None:
        if self.mask_format is not None and self.mask_format not in get_args(MaskFormat):
            raise BadInputError(f"--mask-format is {self.mask_format}, but it must be png or tiff.")
        if self.tile_overlap is None:
            return
        if not 0 <= self.tile_overlap <= _MOST_OVERLAP:
            raise BadInputError(
                f"--tile-overlap is {self.tile_overlap}, but it must be from 0 to {_MOST_OVERLAP}, such as "
                "0.25."
            )
        is_scaled = spec.tile is None and recipe.image_size is not None
        if is_scaled and size_before_scaling(recipe, spec) is None:
            raise BadInputError(
                f"--tile-overlap has no effect: RUN was trained with --image-size {recipe.image_size}, so "
                f"each image is scaled as a whole, without tiles; leave it out."
            )
