"""A recipe as a YAML file, for the run directory: every field, and exactly the same when read back."""

from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.fields import plain_values
from drivetrain.recipe.merging import Setting, layer_of
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.yaml_text import PlainDumper, read_yaml_file


def recipe_to_yaml(recipe: Recipe) -> str:
    """Every field in the schema's order."""
    return yaml.dump(
        plain_values(recipe), Dumper=PlainDumper, sort_keys=False, allow_unicode=True, default_flow_style=None
    )


def read_recipe_yaml(path: str | Path) -> dict[str, Any]:
    """The values of a written recipe by field name."""
    document = read_yaml_file(Path(path), source=str(path))
    if not isinstance(document.root, MappingNode):
        raise BadInputError(f"{path} holds no recipe.")
    settings = [
        Setting(entry.key, document.value(entry.node), f"{path}:{entry.line}")
        for entry in document.entries(document.root)
    ]
    return dict(layer_of(settings).values)
