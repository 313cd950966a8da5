"""Builds the model of a recipe, always in this order: build, edit, load initial weights, freeze."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from drivetrain.catalogue.models import check_image_size, is_external_model, model_info
from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure, import_factory
from drivetrain.core.randomness import stream_key
from drivetrain.data.source import DataSpec
from drivetrain.models.create import build_model, in_working_form, takes_parameter
from drivetrain.models.freeze import freeze_parameters
from drivetrain.models.initial_weights import load_initial_weights
from drivetrain.models.lazy_layers import complete_lazy_layers
from drivetrain.recipe.schema import Recipe

__all__ = ["edit_model", "input_shape_of", "is_own_model", "outline_model", "prepare_model", "rebuild_model"]

_OPTION = "--model-edit"


def edit_model(model: nn.Module, names: Sequence[str], *, seed: int = 0) -> nn.Module:
    """Applies the functions of `--model-edit` in order; each returns a new model, or edits in place.

    What a function draws from torch's generator depends only on the seed and the function's name.
    """
    for name in names:
        with torch.random.fork_rng(devices=[]):
            model = _apply(model, name, seed=seed)
    return in_working_form(model) if names else model


def _apply(model: nn.Module, name: str, *, seed: int) -> nn.Module:
    edit = import_factory(name, option=_OPTION)
    # Seeded after the import: the import may draw random numbers too, but only the first time.
    torch.default_generator.manual_seed(stream_key(seed, "edit", name))
    try:
        edited = edit(model)
    except BadInputError:
        raise
    except Exception as error:
        raise BadInputError(f"{_OPTION} {name} failed: {describe_failure(error)}") from error
    if edited is None:
        return model
    if not isinstance(edited, nn.Module):
        raise BadInputError(
            f"{_OPTION} {name} returned a {type(edited).__name__}; return the model, or nothing."
        )
    return edited


def prepare_model(
    recipe: Recipe, spec: DataSpec, *, model: nn.Module | None = None, takes_weights: bool = True
) -> tuple[nn.Module, list[str]]:
    """The model to train, and warnings about it.

    `model` is a model given in Python, used instead of the recipe's. A continued run loads its weights from a
    checkpoint: `takes_weights=False` ignores `--init-from`.
    """
    built = rebuild_model(recipe, spec) if model is None else _own_model(model, recipe)
    warnings: list[str] = []
    if recipe.init_from is not None and takes_weights:
        warnings += load_initial_weights(built, recipe.init_from)
    freeze_parameters(built, recipe.freeze)
    return built, warnings


def is_own_model(recipe: Recipe) -> bool:
    """Whether the model is one of Drivetrain's own, unedited, so that its structure is known."""
    return not recipe.model_edit and not is_external_model(recipe.model)


def rebuild_model(recipe: Recipe, spec: DataSpec) -> nn.Module:
    """The model with the structure that the weights of a checkpoint fit."""
    image_size = recipe.image_size or spec.tile
    if image_size is None and not is_external_model(recipe.model):
        check_image_size(model_info(recipe.model), spec.width)
    built = build_model(
        recipe.model,
        channels=spec.channels,
        image_size=image_size or spec.height,
        num_classes=spec.num_classes,
        seed=recipe.seed,
        params=_factory_params(recipe),
    )
    complete_lazy_layers(built, image_shape=input_shape_of(recipe, spec), seed=recipe.seed)
    return edit_model(built, recipe.model_edit, seed=recipe.seed)


def input_shape_of(recipe: Recipe, spec: DataSpec) -> tuple[int, int, int]:
    """Channels, height and width of the input of a model without an output margin."""
    size = recipe.image_size or spec.tile
    return spec.channels, size or spec.height, size or spec.width


def outline_model(recipe: Recipe, *, channels: int, image_size: int, num_classes: int) -> nn.Module:
    """The model for `plan`: built, edited and frozen, but with undefined weights."""
    built = build_model(
        recipe.model,
        channels=channels,
        image_size=image_size,
        num_classes=num_classes,
        seed=recipe.seed,
        params=_factory_params(recipe),
        draws_weights=False,
    )
    complete_lazy_layers(built, image_shape=(channels, image_size, image_size), seed=recipe.seed)
    edited = edit_model(built, recipe.model_edit, seed=recipe.seed)
    freeze_parameters(edited, recipe.freeze)
    return edited


def _factory_params(recipe: Recipe) -> dict[str, Any]:
    """`--model-params`, with `--model-width` added as `width`, its name in the factories."""
    if recipe.model_width is None:
        return recipe.model_params
    if "width" in recipe.model_params:
        raise BadInputError(
            f"--model-width {recipe.model_width} and width in --model-params set the same; leave one out."
        )
    if not takes_parameter(recipe.model, "width"):
        raise BadInputError(
            f"--model-width {recipe.model_width} has no effect on {recipe.model}, which has no width; "
            "unet, unet_medical and unet_same have one."
        )
    return {**recipe.model_params, "width": recipe.model_width}


def _own_model(model: nn.Module, recipe: Recipe) -> nn.Module:
    if recipe.model_edit:
        raise BadInputError(
            f"--model-edit {recipe.model_edit[0]} is for models given by name; "
            "edit your own model before you pass it."
        )
    return model
