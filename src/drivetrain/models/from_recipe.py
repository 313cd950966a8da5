"""Builds the model of a recipe, always in this order: build, edit, load initial weights, freeze."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from drivetrain.catalogue.input_kinds import InputKind
from drivetrain.catalogue.models import check_image_size, is_external_model, model_info, named_task
from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure, import_factory
from drivetrain.core.randomness import stream_key
from drivetrain.data.source import DataSpec
from drivetrain.models.create import build_external, build_model, in_working_form, takes_parameter
from drivetrain.models.freeze import freeze_parameters
from drivetrain.models.input_form import set_input_kind
from drivetrain.models.lazy_layers import complete_lazy_layers
from drivetrain.models.weights.loading import load_file
from drivetrain.models.weights.published import load_published
from drivetrain.recipe.schema import Recipe

__all__ = [
    "edit_model",
    "factory_shape_of",
    "input_shape_of",
    "is_own_model",
    "outline_model",
    "prepare_model",
    "rebuild_model",
]

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
    checkpoint: `takes_weights=False` ignores `--init-from` and `--pretrained`.
    """
    built = rebuild_model(recipe, spec) if model is None else _own_model(model, recipe)
    warnings = _load_weights(built, recipe, spec) if takes_weights else []
    freeze_parameters(built, recipe.freeze, norms=recipe.freeze_norm)
    return set_input_kind(built, spec.input_kind), warnings


def _load_weights(model: nn.Module, recipe: Recipe, spec: DataSpec) -> list[str]:
    if recipe.init_from is not None:
        return load_file(model, recipe.init_from, option="--init-from")
    if isinstance(recipe.pretrained, str):
        return load_file(model, recipe.pretrained, option="--pretrained")
    if recipe.pretrained:
        return load_published(
            model,
            name=recipe.model,
            image_size=input_shape_of(recipe, spec)[-1],
            task=spec.task,
            params=recipe.model_params,
        )
    return []


def is_own_model(recipe: Recipe) -> bool:
    """Whether the model is one of Drivetrain's own, unedited, so that its structure is known."""
    return not recipe.model_edit and not is_external_model(recipe.model)


def rebuild_model(recipe: Recipe, spec: DataSpec) -> nn.Module:
    """The model with the structure that the weights of a checkpoint fit."""
    if spec.input_kind != "image":
        return set_input_kind(_built_for_numbers(recipe, spec), spec.input_kind)
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
        task=spec.task,
    )
    complete_lazy_layers(built, image_shape=input_shape_of(recipe, spec), seed=recipe.seed)
    return edit_model(built, recipe.model_edit, seed=recipe.seed)


def _built_for_numbers(recipe: Recipe, spec: DataSpec) -> nn.Module:
    """The model for a table or for signals, from a user's class or function."""
    built = build_external(
        recipe.model, shape=factory_shape_of(recipe, spec), params=recipe.model_params, seed=recipe.seed
    )
    complete_lazy_layers(built, image_shape=input_shape_of(recipe, spec), seed=recipe.seed)
    return edit_model(built, recipe.model_edit, seed=recipe.seed)


def factory_shape_of(recipe: Recipe, spec: DataSpec) -> dict[str, int]:
    """The parts of the data's shape that a user's class or function may take as keyword arguments."""
    if spec.input_kind == "table":
        return {"num_features": spec.channels, "num_classes": spec.num_classes}
    if spec.input_kind == "signal":
        return {"channels": spec.channels, "length": spec.width, "num_classes": spec.num_classes}
    channels, height, _ = input_shape_of(recipe, spec)
    return {"channels": channels, "image_size": height, "num_classes": spec.num_classes}


def input_shape_of(recipe: Recipe, spec: DataSpec) -> tuple[int, ...]:
    """The shape of one input of a model without an output margin: channels, height and width of an image."""
    if spec.input_kind == "table":
        return (spec.channels,)
    if spec.input_kind == "signal":
        return spec.channels, spec.width
    size = recipe.image_size or spec.tile
    return spec.channels, size or spec.height, size or spec.width


def outline_model(
    recipe: Recipe, *, channels: int, image_size: int, num_classes: int, input_kind: InputKind = "image"
) -> nn.Module:
    """The model for `plan`: built, edited and frozen, but with undefined weights."""
    if input_kind != "image":
        return _outline_for_numbers(recipe, _spec_of(input_kind, channels, image_size, num_classes))
    built = build_model(
        recipe.model,
        channels=channels,
        image_size=image_size,
        num_classes=num_classes,
        seed=recipe.seed,
        params=_factory_params(recipe),
        draws_weights=False,
        task=named_task(dataset=recipe.dataset, model=recipe.model),
    )
    complete_lazy_layers(built, image_shape=(channels, image_size, image_size), seed=recipe.seed)
    edited = edit_model(built, recipe.model_edit, seed=recipe.seed)
    freeze_parameters(edited, recipe.freeze, norms=recipe.freeze_norm)
    return edited


def _outline_for_numbers(recipe: Recipe, spec: DataSpec) -> nn.Module:
    model = rebuild_model(recipe, spec)
    freeze_parameters(model, recipe.freeze, norms=recipe.freeze_norm)
    return model


def _spec_of(kind: InputKind, channels: int, length: int, num_classes: int) -> DataSpec:
    return DataSpec(
        channels=channels,
        height=1,
        width=length,
        num_classes=num_classes,
        class_names=tuple(map(str, range(num_classes))),
        image_dtype="float32",
        input_kind=kind,
    )


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
