"""`drivetrain recipes`: lists the named recipes, or shows one with the origin of each value."""

import argparse
import json
import sys
from collections.abc import Sequence

from drivetrain.cli.options import add_recipe_options, recipe_from_args
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.fields import plain_values
from drivetrain.recipe.load import ResolvedRecipe, recipe_to_yaml
from drivetrain.recipe.named import packaged_description, packaged_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the actions `list` and `show`."""
    actions = parser.add_subparsers(dest="action", metavar="list|show")
    listing = actions.add_parser("list", help="list the named recipes")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    show = actions.add_parser("show", help="show every value of a recipe and where it comes from")
    show.add_argument(
        "name", nargs="?", metavar="NAME", help="named recipe (default: what `train` without options runs)"
    )
    form = show.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, with the origin of each value")
    form.add_argument("--yaml", action="store_true", help="print YAML, for use with --config-path")
    add_recipe_options(show)


def run(args: argparse.Namespace) -> int:
    """Prints the list, or one recipe."""
    if args.action in (None, "list"):
        _print_list(as_json=args.action == "list" and args.json)
    else:
        _print_recipe(_resolve(args), args)
    return 0


def _resolve(args: argparse.Namespace) -> ResolvedRecipe:
    if args.name is not None and args.config is not None:
        raise BadInputError(f"{args.name} and --config {args.config} both name a recipe; leave out --config.")
    args.config = args.name or args.config
    return recipe_from_args(args)


def _print_list(*, as_json: bool) -> None:
    recipes = [(name, packaged_description(name)) for name in packaged_names()]
    if as_json:
        _print_json([{"name": name, "description": description} for name, description in recipes])
    else:
        _print_table(("recipe", "description"), recipes)


def _print_recipe(resolved: ResolvedRecipe, args: argparse.Namespace) -> None:
    values = plain_values(resolved.recipe)
    if args.yaml:
        sys.stdout.write(recipe_to_yaml(resolved.recipe))
    elif args.json:
        options = {field: {"value": values[field], "origin": resolved.origins[field]} for field in values}
        _print_json({"name": resolved.name, "options": options, "warnings": list(resolved.warnings)})
    else:
        rows = [(field.replace("_", "-"), _cell(values[field]), resolved.origins[field]) for field in values]
        _print_table(("option", "value", "origin"), rows)
    if not args.json:
        sys.stderr.writelines(f"drivetrain recipes: warning: {warning}\n" for warning in resolved.warnings)


def _cell(value: object) -> str:
    if value is None or value == ():
        return "-"
    if isinstance(value, tuple):
        return " ".join(map(_cell, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _print_json(content: object) -> None:
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a rich table on a terminal, and plain aligned columns elsewhere."""
    if sys.stdout.isatty():
        _print_rich_table(titles, rows)
        return
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _print_rich_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, emoji=False, highlight=False)
    table = Table(*titles, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
