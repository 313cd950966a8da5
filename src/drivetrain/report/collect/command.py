"""The command that trains the same recipe again."""

import shlex
from collections.abc import Mapping
from typing import Any

from drivetrain.recipe.fields import default_values, fields_with, option_name, written_value
from drivetrain.recipe.notes import Fact
from drivetrain.store.directory import PYTHON_DATA

__all__ = ["reproducing_command"]

# The recipe whose values are the defaults of all options: with it, no other recipe and no rule sets any.
_PLAIN_RECIPE = "digits"
_OF_RULES = ("auto", "budget")


def reproducing_command(recipe: Mapping[str, Any], *, command: str = "train") -> str:
    """A command that names every option that is no default; a sentence for models and data of Python code."""
    if not recipe:
        return ""
    if recipe.get("dataset") == PYTHON_DATA or str(recipe.get("model", "")).startswith("__main__:"):
        return "The data or the model are Python objects: run the script that trained them again."
    left_out = {*_OF_RULES, *fields_with(Fact.ONE_CALL), "output_dir"}
    left_out |= set() if recipe.get("folds") else {"fold_scheme"}
    defaults = default_values()
    changed = {
        field: value
        for field, value in recipe.items()
        if field in defaults and field not in left_out and _is_other(value, defaults[field])
    }
    typed = [f"{option_name(field)} {_typed(value)}" for field, value in changed.items()]
    return " ".join([f"drivetrain {command} --config {_PLAIN_RECIPE}", *typed])


def _is_other(value: Any, default: Any) -> bool:
    """Whether a value differs from a default; in files, several words are a list."""
    same = (list(each) if isinstance(each, tuple) else each for each in (value, default))
    return bool(next(same) != next(same))


def _typed(value: Any) -> str:
    """A value for a shell; several words are several arguments."""
    if isinstance(value, tuple | list) and value and all(isinstance(each, str) for each in value):
        return " ".join(map(shlex.quote, value))
    return shlex.quote(value) if isinstance(value, str) else written_value(value)
