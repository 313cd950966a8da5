"""Resolves YAML files and command-line options into one checked recipe, and writes a recipe as YAML."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from yaml.nodes import MappingNode

from drivetrain.catalogue.tasks import task_info
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.checks.all_rules import check_recipe
from drivetrain.recipe.checks.pipeline import derive_memory
from drivetrain.recipe.checks.replicas import derive_replicas
from drivetrain.recipe.fields import default_values, fields_with, plain_values
from drivetrain.recipe.given import Given
from drivetrain.recipe.merging import Layer, Setting, layer_of, merge_layers
from drivetrain.recipe.messages import COMMAND_LINE, DEFAULT, RULES, RUN_DIRECTORY, explain_validation_error
from drivetrain.recipe.named import file_layers, packaged_layers
from drivetrain.recipe.notes import Fact
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.yaml_text import PlainDumper, YamlDocument, read_yaml_text

__all__ = ["ResolvedRecipe", "default_layers", "read_recipe_yaml", "recipe_to_yaml", "resolve_recipe"]

_EMBEDDED = "synthetic_em"
_COMMENT_WIDTH = 100
_KEPT_RECIPES = 256


def default_layers(asked: Sequence[Layer]) -> list[Layer]:
    """The layers below the user's options when no recipe was named.

    A bare `train` runs the recipe `synthetic_em`. If only a segmentation model or data set is named, the
    rest comes from `synthetic_em`; for classification it comes from the schema's defaults, which are those
    of the recipe `digits`.
    """
    from drivetrain.catalogue.data_sets import dataset_task
    from drivetrain.catalogue.models import model_task

    model, dataset = (_last_word(asked, field) for field in ("model", "dataset"))
    data_dir = _last_word(asked, "data_dir")
    if dataset is None and data_dir is not None:
        raise BadInputError(
            f"--data-dir {data_dir} needs --dataset, which says how to read the folder; --dataset "
            "mask-folder reads images with masks, --dataset image-folder one folder of images per class."
        )
    if model is None and dataset is None:
        return packaged_layers(_EMBEDDED)
    tasks = (
        None if model is None else model_task(model),
        None if dataset is None else dataset_task(dataset),
    )
    recipes = (task_info(task).default_recipe for task in tasks if task is not None)
    fitting = next((name for name in recipes if name is not None), None)
    return [] if fitting is None else packaged_layers(fitting)


def _last_word(layers: Sequence[Layer], field: str) -> str | None:
    words = [str(layer.values[field]) for layer in layers if field in layer.values]
    return words[-1] if words else None


def recipe_to_yaml(recipe: Recipe, *, reasons: Mapping[str, str] | None = None) -> str:
    """All fields as YAML, in the schema's order, for the run directory; reading it back is lossless.

    `reasons` are written as comments above the fields that rules have set.
    """
    text: str = yaml.dump(
        plain_values(recipe), Dumper=PlainDumper, sort_keys=False, allow_unicode=True, default_flow_style=None
    )
    return "".join(_with_reasons(text.splitlines(keepends=True), reasons or {}))


def _with_reasons(lines: Iterable[str], reasons: Mapping[str, str]) -> Iterator[str]:
    """The lines of a recipe, with comments above the fields that have a reason."""
    for line in lines:
        # Lines of nested values are indented or begin with a dash, so they are no field's name.
        reason = reasons.get(line.partition(":")[0], "")
        yield from (f"# {part}\n" for part in textwrap.wrap(reason, width=_COMMENT_WIDTH))
        yield line


def read_recipe_yaml(path: str | Path) -> dict[str, Any]:
    """The values of a recipe that `recipe_to_yaml` wrote, by field name.

    Pages and lists of many runs read the same files again and again, so a text is parsed once.
    """
    return deepcopy(_parsed_recipe(read_yaml_text(Path(path), source=str(path)), path=str(path)))


@lru_cache(maxsize=_KEPT_RECIPES)
def _parsed_recipe(text: str, *, path: str) -> dict[str, Any]:
    document = YamlDocument(text, source=path)
    if not isinstance(document.root, MappingNode):
        raise BadInputError(f"{path} does not contain a recipe.")
    settings = [
        Setting(entry.key, document.value(entry.node), f"{path}:{entry.line}")
        for entry in document.entries(document.root)
    ]
    return dict(layer_of(settings).values)


@dataclass(frozen=True, slots=True)
class ResolvedRecipe:
    """A checked recipe, the origin of each value, and a name for its run directory.

    Where rules have set options for a user's own data, `reasons` says why, by field, `fingerprint` is what
    they looked at, and `notes` are sentences for the user. Where a smaller micro-batch was chosen to fit the
    memory, `fitted_from` holds the values that were asked for.
    """

    recipe: Recipe
    origins: dict[str, str]
    name: str
    warnings: tuple[str, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)
    fingerprint: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    fitted_from: Mapping[str, int | None] | None = None

    @property
    def skips_by_rule(self) -> bool:
        """Whether rules left --remainder as it is, because few samples do not fill a global batch."""
        return bool(self.reasons) and self.origins["remainder"] == DEFAULT


def resolve_recipe(
    *,
    config: str | None = None,
    config_path: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    base: Mapping[str, Any] | None = None,
    decided: Mapping[str, Any] | None = None,
) -> ResolvedRecipe:
    """Merges defaults, a run's recipe, a named recipe and the command line, later ones win; then checks.

    `decided` are values that rules chose for the options that nobody set.
    """
    layers = [
        *_plain_layer(_lasting(base), origin=RUN_DIRECTORY),
        *_recipe_layers(config, config_path),
        *_plain_layer(decided, origin=RULES),
        *_plain_layer(overrides, origin=COMMAND_LINE),
    ]
    if base is None and config is None and config_path is None and decided is None:
        layers = [*default_layers(layers), *layers]
    merged = merge_layers(layers)
    origins = dict(merged.origins)
    recipe = derive_replicas(_validated(merged), origins)
    warnings = check_recipe(recipe, origins)
    recipe = derive_memory(Given(recipe, origins))
    if recipe.devices is not None:
        # Only the replicas are stored: a run that continues with another number of stages would otherwise
        # contradict its own --devices.
        recipe = recipe.model_copy(update={"devices": None})
        origins["replicas"] = origins["devices"]
    return ResolvedRecipe(recipe, origins, _name(recipe, config, config_path), tuple(warnings))


def _lasting(base: Mapping[str, Any] | None) -> dict[str, Any]:
    """A run's recipe without the options meant for one call, such as --overwrite."""
    of_one_call = fields_with(Fact.ONE_CALL)
    return {field: value for field, value in (base or {}).items() if field not in of_one_call}


def _plain_layer(values: Mapping[str, Any] | None, *, origin: str) -> list[Layer]:
    settings = [Setting(key, value, origin) for key, value in (values or {}).items()]
    return [layer_of(settings, may_repeat=True)] if settings else []


def _recipe_layers(config: str | None, config_path: str | Path | None) -> list[Layer]:
    if config_path is not None:
        return file_layers(Path(config_path), config=config)
    return [] if config is None else packaged_layers(config)


def _validated(merged: Layer) -> Recipe:
    # Only values that differ from the default are set, so that pydantic's `model_fields_set` names exactly
    # what was asked for; `drivetrain.api` passes those fields on.
    asked = {field: value for field, value in merged.values.items() if value != default_values()[field]}
    try:
        return Recipe.model_validate(asked)
    except ValidationError as error:
        raise explain_validation_error(error, origins=merged.origins) from None


def _name(recipe: Recipe, config: str | None, config_path: str | Path | None) -> str:
    """The recipe's name, restricted to characters that are safe in a folder name."""
    stem = None if config_path is None else Path(config_path).stem
    wished = config or stem or f"{recipe.dataset}-{recipe.model}"
    return re.sub(r"[^A-Za-z0-9_-]+", "-", wished).strip("-") or "recipe"
