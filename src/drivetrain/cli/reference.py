"""Writes docs/commands.md from the commands and the recipe's schema: `python -m drivetrain.cli.reference`."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module

from drivetrain.cli.main import COMMANDS
from drivetrain.cli.options import OneSentenceParser, add_recipe_options
from drivetrain.recipe.schema import GROUPS

__all__ = ["commands_page"]

_HEAD = """# Commands and options

Every command and every option, generated from the code by `make commands`. `drivetrain COMMAND --help`
prints the same on a terminal. A recipe option can be written in three places: on the command line
(`--micro-batch-size 32`), in a YAML recipe (`micro_batch_size: 32`), or as a keyword in Python
(`drivetrain.train(micro_batch_size=32)`).

## Commands

| command | what it does |
| --- | --- |
"""
_RECIPE_HEAD = """## Recipe options

`train`, `crossval`, `plan`, `verify` and `bench` take all of these. The defaults below hold once a model or a
data set is named. A command that names neither runs the recipe `synthetic_em`. A segmentation model or data
set alone takes the rest from that recipe.
"""
_STATUSES = """
## Exit statuses

| status | meaning |
| --- | --- |
| 0 | done |
| 1 | failed while running; `predict` left out files that cannot be read; `verify` found a different result |
| 2 | bad input: nothing was written or trained |
| 75 | the time of `--max-time` is up; a checkpoint was written, and the same command continues |
| 130, 143 | stopped by Ctrl-C (SIGINT) or SIGTERM, after writing a checkpoint |
"""


def commands_page() -> str:
    """The whole page as Markdown."""
    commands = [f"| `{name}` | {_cell(command.summary)} |" for name, command in COMMANDS.items()]
    parts = [_HEAD + "\n".join(commands), _STATUSES]
    parts += [section for name in COMMANDS for section in _command_sections(name)]
    parts += [_RECIPE_HEAD]
    parts += [_table(f"### {group.title}", _shown(group._group_actions)) for group in _recipe_groups()]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _command_sections(name: str) -> Iterator[str]:
    """The options that only this command has, or each of its sub-commands."""
    parser = OneSentenceParser(prog=name)
    import_module(COMMANDS[name].module).add_arguments(parser)
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    named = {f"{name} {word}": sub for action in below for word, sub in action.choices.items()}
    for title, one in named.items() if named else [(name, parser)]:
        if own := _own_actions(one):
            yield _table(f"## `{title}`", own)


def _own_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    of_recipes = {
        id(action)
        for group in parser._action_groups
        if group.title in ("recipe", *GROUPS)
        for action in group._group_actions
    }
    return _shown(action for action in parser._actions if id(action) not in of_recipes)


def _recipe_groups() -> list[argparse._ArgumentGroup]:
    parser = OneSentenceParser(prog="train")
    add_recipe_options(parser)
    return [group for group in parser._action_groups if group.title in ("recipe", *GROUPS)]


def _shown(actions: Iterable[argparse.Action]) -> list[argparse.Action]:
    return [action for action in actions if action.help != argparse.SUPPRESS and action.dest != "help"]


def _table(title: str, actions: Iterable[argparse.Action]) -> str:
    rows = [f"| {_name_of(action)} | {_value_of(action)} | {_help_of(action)} |" for action in actions]
    return "\n".join([title, "", "| option | value | meaning |", "| --- | --- | --- |", *rows])


def _name_of(action: argparse.Action) -> str:
    names = action.option_strings or [str(action.metavar or action.dest)]
    return ", ".join(f"`{_cell(name)}`" for name in names)


def _value_of(action: argparse.Action) -> str:
    if action.nargs == 0 or not action.option_strings:
        return ""
    words = str(action.metavar or "").strip("{}").split(",")
    values = words if action.choices is None else map(str, action.choices)
    return " ".join(f"`{_cell(value)}`" for value in values if value)


def _help_of(action: argparse.Action) -> str:
    return _cell((action.help or "").replace("%%", "%"))


def _cell(text: str) -> str:
    """Text that stays inside its cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(commands_page())
