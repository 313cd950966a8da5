"""Puts the normalisation that a recipe asks for into the description of its data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import IMAGENET_MEAN, IMAGENET_STD, DataSpec, DataSplits, Normalisation
from drivetrain.recipe.normalisation import ChannelValues
from drivetrain.recipe.schema import Recipe

__all__ = ["normalised_as_asked", "with_normalisation"]

_COLOURS = 3


def normalised_as_asked(splits: DataSplits, recipe: Recipe) -> DataSplits:
    """The data with the recipe's normalisation, and a warning where it has no effect."""
    if recipe.normalisation == "auto":
        return splits
    if splits.spec.image_dtype != "uint8":
        return replace(splits, warnings=[*splits.warnings, _idle_warning(splits.spec, recipe)])
    return replace(splits, spec=with_normalisation(splits.spec, recipe))


def with_normalisation(spec: DataSpec, recipe: Recipe) -> DataSpec:
    """The description of uint8 images, normalised as the recipe asks."""
    asked = recipe.normalisation
    if isinstance(asked, ChannelValues):
        mean, std = _per_channel(asked, channels=spec.channels)
        return replace(spec, normalisation="per-channel", mean=mean, std=std)
    if asked == "imagenet" and spec.channels != _COLOURS:
        mean, std = (_averaged(values, spec.channels) for values in (IMAGENET_MEAN, IMAGENET_STD))
        return replace(spec, normalisation="per-channel", mean=mean, std=std)
    if asked == "standardise" and spec.has_dense_labels:
        raise BadInputError(
            "--normalisation standardise is for classification: parts of an image would be normalised "
            "differently from the whole; --normalisation symmetric works."
        )
    return spec if asked == "auto" else replace(spec, normalisation=cast(Normalisation, asked))


def _idle_warning(spec: DataSpec, recipe: Recipe) -> str:
    asked = recipe.normalisation
    if isinstance(asked, ChannelValues) and asked.of is not None:
        return (
            f"The images are {spec.image_dtype}, which is never normalised: they must already have the mean "
            f"and deviation that {asked.of} expects."
        )
    word = "your values" if isinstance(asked, ChannelValues) else asked
    return f"--normalisation {word} has no effect: the images are {spec.image_dtype}, and only uint8 is."


def _per_channel(values: ChannelValues, *, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if len(values.mean) == channels:
        return values.mean, values.std
    if values.of is None and len(values.mean) != 1:
        raise BadInputError(
            f"--normalisation has {len(values.mean)} numbers in mean, and the images have {channels} "
            "channels; give as many, or one number for all."
        )
    return _averaged(values.mean, channels), _averaged(values.std, channels)


def _averaged(values: Sequence[float], channels: int) -> tuple[float, ...]:
    return (sum(values) / len(values),) * channels
