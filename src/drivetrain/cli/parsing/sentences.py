"""Error sentences about a command's own options, in the form of the recipe's: rule, then a valid value."""

import argparse
from typing import Any

from drivetrain.cli.parsing.switch import parse_switch
from drivetrain.core.wording import did_you_mean, nearest_name, shown
from drivetrain.recipe.aliases import target_of
from drivetrain.recipe.fields import example_text, written_value

__all__ = ["missing_value", "refused_choice", "refused_value"]

_RULES: dict[Any, str] = {int: "a whole number", float: "a number"}
# Examples for numbers that have no default and are not a field of the recipe.
_NUMBERS: dict[Any, str] = {int: "10", float: "0.5"}


def refused_choice(action: argparse.Action, value: object) -> str:
    """The error for a value, or an action, that is not one of the choices."""
    names = [str(choice) for choice in action.choices or ()]
    text = str(value)
    if isinstance(action, argparse._SubParsersAction):
        return f"{shown(text)} is not a command.{did_you_mean(text, names)} Commands: {', '.join(names)}."
    works = nearest_name(text, names) or _example(action) or names[0]
    return _refusal(action, text, rule=f"one of {', '.join(names)}", works=works)


def refused_value(action: argparse.Action, text: str) -> str | None:
    """The error for a value of the wrong type; None if there is no sentence for that type."""
    if action.choices is not None:
        return refused_choice(action, text)
    name = _option_of(action)
    if action.type is parse_switch:
        return f"{name}: {shown(text)} is not a valid boolean value; {name} True works."
    rule = _RULES.get(action.type)
    return None if rule is None else _refusal(action, text, rule=rule, works=_example(action))


def missing_value(action: argparse.Action, *, name: str) -> str:
    """The error for an option without its value; `name` is the option as typed."""
    works = _example(action)
    return f"{name} needs a value." if works is None else f"{name} needs a value; {name} {works} works."


def _option_of(action: argparse.Action) -> str:
    """The name of an argument as it is typed."""
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


def _refusal(action: argparse.Action, text: str, *, rule: str, works: str | None) -> str:
    name = _option_of(action)
    return f"{name} is {shown(text)}, it must be {rule}; {name} {works} works."


def _example(action: argparse.Action) -> str | None:
    """A valid value: the default, the first choice, the example of the recipe's field, or any number."""
    if action.default not in (None, argparse.SUPPRESS):
        default = action.default
        return written_value(tuple(default) if isinstance(default, list) else default)
    if action.choices is not None:
        return str(next(iter(action.choices)))
    target = target_of(action.dest)
    return _NUMBERS.get(action.type) if target is None else example_text(target.field)
