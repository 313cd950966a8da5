"""From images with masks to training samples: whole images of one size, scaled ones, or tiles."""

from dataclasses import replace

from drivetrain.catalogue.data_sets import background_class
from drivetrain.catalogue.models import is_external_model, model_info, nearest_image_size, output_margin_of
from drivetrain.core.errors import BadInputError
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.masks.masked_splits import MaskedSplits
from drivetrain.data.resized_masked import ResizedMasked
from drivetrain.data.source import DataSpec, DataSplits, Source
from drivetrain.data.tile_source import TileSource, UniformSource
from drivetrain.recipe.schema import Recipe

__all__ = ["as_samples"]

_LARGEST_DEFAULT_TILE = 256
_DEFAULT_TILE_STEP = 32


def as_samples(splits: MaskedSplits, *, recipe: Recipe) -> DataSplits:
    """The sources of a segmentation, in the geometry a recipe asks for or the images call for."""
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
            return UniformSource(ResizedMasked(masked, recipe.image_size, spec.num_classes))
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

    weighted = WithBorderWeights(masked, recipe.border_sigma, background_class(spec.class_names))
    if not weighted.is_idle():
        return weighted, []
    return weighted, [
        f"--border-weight {recipe.border_weight:g} has no effect: in no mask do two objects lie within "
        f"{reach_of(recipe.border_sigma)} pixels of each other, and objects of one class that touch count as "
        "one unless each has a mask of its own."
    ]


def _choose_tile(
    recipe: Recipe, *, size: tuple[int, int] | None, longest_side: int
) -> tuple[int | None, list[str]]:
    """The side of the tiles, None for whole images, and what should be said about a choice nobody made."""
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
        f"The images have many sizes, so training cuts random tiles of {tile}x{tile} out of them, mirrored "
        "where an image is smaller; --tile-size N chooses another size, --image-size N scales all images to "
        "one size instead."
    ]


def _require_size(recipe: Recipe, tile: int) -> None:
    works = nearest_image_size(recipe.model, tile)
    if works != tile:
        raise BadInputError(
            f"--tile-size {tile} does not divide through the layers of --model {recipe.model}; --tile-size "
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
            f"--model {recipe.model} cannot take images of {height}x{width} whole; --tile-size {works} cuts "
            f"tiles out of them, --image-size {works} scales them."
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
