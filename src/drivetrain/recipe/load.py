"""From what the user wrote, in YAML and on the command line, to one checked recipe that knows its origins."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drivetrain.recipe.checks.all_rules import check_recipe
from drivetrain.recipe.checks.pipeline import derive_memory
from drivetrain.recipe.checks.replicas import derive_replicas
from drivetrain.recipe.default_recipe import default_layers
from drivetrain.recipe.fields import default_values
from drivetrain.recipe.given import Given
from drivetrain.recipe.merging import Layer, Setting, layer_of, merge_layers
from drivetrain.recipe.messages import COMMAND_LINE, RUN_DIRECTORY, explain_validation_error
from drivetrain.recipe.named import file_layers, packaged_layers
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.written import read_recipe_yaml, recipe_to_yaml

__all__ = ["ResolvedRecipe", "read_recipe_yaml", "recipe_to_yaml", "resolve_recipe"]

_FOR_ONE_CALL = frozenset({"overwrite", "training"})


@dataclass(frozen=True, slots=True)
class ResolvedRecipe:
    """A checked recipe, where each of its values comes from, and a name for its run directory."""

    recipe: Recipe
    origins: dict[str, str]
    name: str
    warnings: tuple[str, ...]


def resolve_recipe(
    *,
    config: str | None = None,
    config_path: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    base: Mapping[str, Any] | None = None,
) -> ResolvedRecipe:
    """Defaults, a run's recipe, a named recipe, the command line: the later wins; then all rules."""
    layers = [
        *_plain_layer(_lasting(base), origin=RUN_DIRECTORY),
        *_recipe_layers(config, config_path),
        *_plain_layer(overrides, origin=COMMAND_LINE),
    ]
    if base is None and config is None and config_path is None:
        layers = [*default_layers(layers), *layers]
    merged = merge_layers(layers)
    origins = dict(merged.origins)
    recipe = derive_replicas(_validated(merged), origins)
    warnings = check_recipe(recipe, origins)
    recipe = derive_memory(Given(recipe, origins))
    if recipe.devices is not None:
        # The replicas tell it from now on: a run that goes on with other stages would contradict both.
        recipe = recipe.model_copy(update={"devices": None})
        origins["replicas"] = origins["devices"]
    return ResolvedRecipe(recipe, origins, _name(recipe, config, config_path), tuple(warnings))


def _lasting(base: Mapping[str, Any] | None) -> dict[str, Any]:
    """A run's recipe without what was meant for one call: starting afresh, and only validating."""
    return {field: value for field, value in (base or {}).items() if field not in _FOR_ONE_CALL}


def _plain_layer(values: Mapping[str, Any] | None, *, origin: str) -> list[Layer]:
    settings = [Setting(key, value, origin) for key, value in (values or {}).items()]
    return [layer_of(settings, may_repeat=True)] if settings else []


def _recipe_layers(config: str | None, config_path: str | Path | None) -> list[Layer]:
    if config_path is not None:
        return file_layers(Path(config_path), config=config)
    return [] if config is None else packaged_layers(config)


def _validated(merged: Layer) -> Recipe:
    # Only what differs is set: whoever passes the recipe on passes no default as if it had been asked for.
    asked = {field: value for field, value in merged.values.items() if value != default_values()[field]}
    try:
        return Recipe.model_validate(asked)
    except ValidationError as error:
        raise explain_validation_error(error, origins=merged.origins) from None


def _name(recipe: Recipe, config: str | None, config_path: str | Path | None) -> str:
    """A name that is safe for a folder."""
    stem = None if config_path is None else Path(config_path).stem
    wished = config or stem or f"{recipe.dataset}-{recipe.model}"
    return re.sub(r"[^A-Za-z0-9_-]+", "-", wished).strip("-") or "recipe"
