"""From images with masks to training samples: whole images of one size, scaled ones, or tiles."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import background_class
from drivetrain.catalogue.models import is_external_model, model_info, nearest_image_size, output_margin_of
from drivetrain.core.errors import BadInputError
from drivetrain.data.masks.ignored_classes import without_classes
from drivetrain.data.masks.masked_images import MaskedImages, MaskedSplits
from drivetrain.data.source import DataSpec, DataSplits, Source
from drivetrain.data.training_tiles import TileSource, UniformSource
from drivetrain.recipe.schema import Recipe

__all__ = ["ResizedMasked", "as_samples"]

_LARGEST_DEFAULT_TILE = 256
_DEFAULT_TILE_STEP = 32


@dataclass(frozen=True, slots=True)
class ResizedMasked:
    """Every image scaled to `size_px` x `size_px`, its labels as `sample_labels` says."""

    masked: MaskedImages
    size_px: int
    num_classes: int

    def __len__(self) -> int:
        return len(self.masked)

    def name(self, index: int) -> str:
        """What a message calls the image."""
        return self.masked.name(index)

    def size(self, index: int) -> tuple[int, int]:  # noqa: ARG002
        """Height and width."""
        return self.size_px, self.size_px

    def whole(self, index: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """The scaled image and its mask."""
        import torch  # the rest of a data set opens without it
        from torch.nn.functional import interpolate

        from drivetrain.data.preprocess import SampleMode, sample_labels

        def sample(planes: torch.Tensor, mode: SampleMode) -> torch.Tensor:
            size = (self.size_px, self.size_px)
            if mode == "nearest":
                return interpolate(planes, size=size, mode="nearest-exact")
            return interpolate(planes, size=size, mode="bilinear", align_corners=False)

        image, mask = self.masked.whole(index)
        planes = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None]
        pixels = sample(planes, "bilinear")[0].permute(1, 2, 0).contiguous().numpy()
        labels = sample_labels(
            torch.from_numpy(mask.copy())[None], num_classes=self.num_classes, sample=sample
        )
        scaled = pixels if image.dtype == np.float32 else np.rint(pixels).astype(image.dtype)
        return scaled, labels[0].numpy()


def as_samples(splits: MaskedSplits, *, recipe: Recipe) -> DataSplits:
    """The sources of a segmentation, in the geometry a recipe asks for or the images call for."""
    splits = without_classes(splits, recipe.ignore_class)
    parts = [part for part in (splits.train, splits.validation, splits.test) if part is not None]
    sizes = {part.size(index) for part in parts for index in range(len(part))}
    size = next(iter(sizes)) if len(sizes) == 1 else None
    tile, warnings = _choose_tile(recipe, size=size, longest_side=max(map(max, sizes)))
    spec = _sized_spec(splits.spec, recipe=recipe, size=size, tile=tile)

    def source(masked: MaskedImages | None) -> Source | None:
        if masked is None:
            return None
        if tile is not None:
            return TileSource(masked, tile=tile, margin=output_margin_of(recipe.model), seed=recipe.seed)
        if size is None:
            assert recipe.image_size is not None
            return UniformSource(ResizedMasked(masked, recipe.image_size, spec.label_values))
        return UniformSource(masked)

    weighted, idle_warnings = _with_border_weights(splits.train, recipe=recipe, spec=spec)
    train = source(weighted)
    assert train is not None
    return DataSplits(
        train=train,
        validation=source(splits.validation),
        test=source(splits.test),
        spec=spec,
        warnings=[*splits.warnings, *warnings, *idle_warnings],
    )


def _with_border_weights(
    masked: MaskedImages, *, recipe: Recipe, spec: DataSpec
) -> tuple[MaskedImages, list[str]]:
    """The images with border weights where a recipe asks for them, and what to say where there are none."""
    if not recipe.border_weight:
        return masked, []
    from drivetrain.data.masks.border_weights import (  # scipy, which few recipes need
        WithBorderWeights,
        reach_of,
    )

    weighted = WithBorderWeights(
        masked, recipe.border_sigma, background_class(spec.class_names), spec.ignores_pixels
    )
    if not weighted.is_idle():
        return weighted, []
    return weighted, [
        f"--border-weight {recipe.border_weight:g} has no effect: no mask has two objects within "
        f"{reach_of(recipe.border_sigma)} pixels of each other (touching objects of one class count as one "
        "object unless each has its own mask)."
    ]


def _choose_tile(
    recipe: Recipe, *, size: tuple[int, int] | None, longest_side: int
) -> tuple[int | None, list[str]]:
    """The side of the tiles (None for whole images), and a warning if it was chosen by default."""
    if recipe.tile_size is not None:
        _require_size(recipe, recipe.tile_size)
        return recipe.tile_size, []
    if recipe.image_size is not None:
        return None, []
    if size is not None:
        _require_square(recipe, size)
        return None, []
    # A tile larger than every image would show each of them several times over.
    enough = -(-longest_side // _DEFAULT_TILE_STEP) * _DEFAULT_TILE_STEP
    tile = nearest_image_size(recipe.model, min(_LARGEST_DEFAULT_TILE, enough))
    return tile, [
        f"The images differ in size, so training uses random tiles of {tile}x{tile} pixels (smaller images "
        "are mirrored at their borders); use --tile-size N for another tile size, or --image-size N to "
        "resize all images to one size instead."
    ]


def _require_size(recipe: Recipe, tile: int) -> None:
    works = nearest_image_size(recipe.model, tile)
    if works != tile:
        raise BadInputError(
            f"--tile-size {tile} does not fit the layers of --model {recipe.model}; --tile-size "
            f"{works} works."
        )


def _require_square(recipe: Recipe, size: tuple[int, int]) -> None:
    """Whole images must be what the model takes; one without padding takes few sizes."""
    height, width = size
    if is_external_model(recipe.model) or not model_info(recipe.model).output_margin:
        return
    if height != width or nearest_image_size(recipe.model, height) != height:
        works = nearest_image_size(recipe.model, min(size))
        raise BadInputError(
            f"--model {recipe.model} cannot process whole images of {height}x{width}; use --tile-size "
            f"{works} to train on tiles, or --image-size {works} to resize the images."
        )


def _sized_spec(
    spec: DataSpec, *, recipe: Recipe, size: tuple[int, int] | None, tile: int | None
) -> DataSpec:
    if tile is not None:
        side = tile + 2 * output_margin_of(recipe.model)
        return replace(spec, height=side, width=side, tile=tile)
    if size is None:
        assert recipe.image_size is not None
        size = (recipe.image_size, recipe.image_size)
    return replace(spec, height=size[0], width=size[1])
