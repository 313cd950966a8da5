"""Writes a recipe with the reasons of its choices, for --config-path."""

from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_atomically
from drivetrain.recipe.load import ResolvedRecipe, recipe_to_yaml

__all__ = ["check_new_file", "save_recipe"]


def check_new_file(path: Path) -> None:
    """Refuses a file that is there already, or whose folder is not."""
    if path.exists():
        raise BadInputError(f"--save-recipe {path} exists already; name a new file.")
    if not path.parent.is_dir():
        raise BadInputError(
            f"--save-recipe {path}: {path.parent} is not a folder; --save-recipe new.yaml works."
        )


def save_recipe(resolved: ResolvedRecipe, path: Path) -> None:
    """Writes the recipe; a comment above each chosen option says why."""
    write_atomically(path, recipe_to_yaml(resolved.recipe, reasons=resolved.reasons).encode())
