"""Whether rules choose the options of a recipe: for a user's own folder, unless a recipe was named."""

from collections.abc import Mapping

from drivetrain.auto.budget import budget_s
from drivetrain.catalogue.data_sets import is_external_dataset, is_folder_of_files
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.messages import COMMAND_LINE
from drivetrain.recipe.schema import Recipe

__all__ = ["refuse_without_rules", "rules_apply"]


def rules_apply(
    recipe: Recipe, origins: Mapping[str, str], *, names_recipe: bool, was_found: bool, has_python_parts: bool
) -> bool:
    """Whether to apply the rules; refuses --auto on and --budget where they cannot be applied.

    `was_found`: the data set was recognised in a folder. `has_python_parts`: data or model are objects.
    """
    if recipe.budget is not None:
        budget_s(recipe.budget)
    is_own = was_found or is_folder_of_files(recipe.dataset)
    obstacle = _obstacle(recipe, names_recipe=names_recipe, has_python_parts=has_python_parts)
    if recipe.auto == "off" or obstacle is not None or (recipe.auto == "auto" and not is_own):
        asked = [name for name in ("auto", "budget") if origins.get(name) == COMMAND_LINE]
        _refuse_idle(recipe, asked, obstacle=obstacle)
        return False
    return True


def refuse_without_rules(recipe: Recipe, origins: Mapping[str, str], *, why: str) -> None:
    """Refuses --budget and --auto on where nothing is chosen by rules; `why` says why not."""
    if recipe.budget is not None and origins.get("budget") == COMMAND_LINE:
        raise BadInputError(f"--budget {recipe.budget} has no effect here: {why}; leave it out.")
    if recipe.auto == "on" and origins.get("auto") == COMMAND_LINE:
        raise BadInputError(f"--auto on has no effect here: {why}; leave it out.")


def _obstacle(recipe: Recipe, *, names_recipe: bool, has_python_parts: bool) -> str | None:
    if names_recipe:
        return "the recipe that --config names sets the options"
    if has_python_parts:
        return "rules look at data in files and at models with a name"
    if is_external_dataset(recipe.dataset):
        return f"rules look at data in files, not at those of --dataset {recipe.dataset}"
    return None


def _refuse_idle(recipe: Recipe, asked: list[str], *, obstacle: str | None) -> None:
    if "budget" in asked:
        why = obstacle or (
            "--auto off asks for the plain defaults"
            if recipe.auto == "off"
            else f"--dataset {recipe.dataset} has options of its own, unless --auto on is given"
        )
        raise BadInputError(f"--budget {recipe.budget} has no effect: {why}; --num-epochs N sets a length.")
    if "auto" in asked and recipe.auto == "on" and obstacle is not None:
        raise BadInputError(f"--auto on has no effect: {obstacle}; leave it out.")
