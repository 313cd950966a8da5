"""A library's own input size and normalisation become part of a recipe that does not set them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drivetrain.catalogue.libraries import is_library_model
from drivetrain.catalogue.models import named_task
from drivetrain.catalogue.tasks import DEFAULT_TASK, task_info
from drivetrain.core.errors import BadInputError
from drivetrain.models.libraries.library import LibraryModel, library_for
from drivetrain.models.libraries.sizes import require_size
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.messages import DEFAULT, RUN_DIRECTORY
from drivetrain.recipe.normalisation import ChannelValues
from drivetrain.recipe.schema import Recipe

__all__ = ["take_over"]


def take_over(resolved: ResolvedRecipe) -> ResolvedRecipe:
    """The recipe with what its library's model brings along, and a sentence about it.

    A run that continues has it in its recipe already, so the library is not asked again.
    """
    recipe, origins = resolved.recipe, resolved.origins
    if not is_library_model(recipe.model) or origins["model"] == RUN_DIRECTORY:
        return resolved
    library, own_name = library_for(recipe.model)
    facts = library.facts(own_name, params=recipe.model_params)
    _require_task(facts, recipe)
    changes = {**_size(facts, recipe, origins), **_normalisation(facts, origins)}
    for side, option in ((recipe.image_size, "--image-size"), (recipe.tile_size, "--tile-size")):
        if side is not None:
            require_size(facts, side, side, options=(option,))
    warning = _sentence(facts, changes)
    return replace(
        resolved,
        recipe=recipe.model_copy(update=changes),
        warnings=(*resolved.warnings, *([warning] if warning else [])),
    )


def _require_task(facts: LibraryModel, recipe: Recipe) -> None:
    wanted = named_task(dataset=recipe.dataset, model=recipe.model)
    if facts.task not in (None, wanted) and wanted is not None:
        raise BadInputError(
            f"--model {recipe.model} is for {facts.task} and --dataset {recipe.dataset} for {wanted}; "
            f"--model {task_info(wanted).example_model} works."
        )


def _size(facts: LibraryModel, recipe: Recipe, origins: Mapping[str, str]) -> dict[str, Any]:
    """The library's size for a classifier; a segmentation trains on images as they are, or on tiles."""
    task = facts.task or named_task(dataset=recipe.dataset, model=recipe.model) or DEFAULT_TASK
    is_open = origins["image_size"] == DEFAULT and origins["tile_size"] == DEFAULT
    return {"image_size": facts.image_size} if is_open and not task_info(task).has_dense_labels else {}


def _normalisation(facts: LibraryModel, origins: Mapping[str, str]) -> dict[str, Any]:
    if origins["normalisation"] != DEFAULT or facts.mean is None or facts.std is None:
        return {}
    return {"normalisation": ChannelValues(mean=facts.mean, std=facts.std, of=facts.name)}


def _sentence(facts: LibraryModel, changes: Mapping[str, Any]) -> str:
    done, options = [], []
    if "image_size" in changes:
        done.append(f"resized to {facts.image_size}x{facts.image_size}")
        options.append("--image-size none keeps the data's size")
    if "normalisation" in changes:
        mean, std = (", ".join(f"{value:g}" for value in values or ()) for values in (facts.mean, facts.std))
        done.append(f"normalised with mean {mean} and deviation {std}")
        options.append("--normalisation unit only scales to 0 to 1")
    if not done:
        return ""
    return f"Images are {' and '.join(done)}, as {facts.name} expects; {', '.join(options)}."
