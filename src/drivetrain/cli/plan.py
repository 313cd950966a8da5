"""`drivetrain plan`: prints what a recipe would do, without reading data or starting anything."""

import json
import sys
from argparse import ArgumentParser, Namespace

from drivetrain.cli.options import add_recipe_options, recipe_from_args
from drivetrain.core.errors import BadInputError


def add_arguments(parser: ArgumentParser) -> None:
    """The options of the command."""
    add_recipe_options(parser)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument(
        "--lr-at", metavar="UPDATES", default="", help="print the learning rate at these updates: 0,100,1000"
    )


def run(args: Namespace) -> int:
    """Prints the plan of the recipe."""
    lr_at = parse_updates(args.lr_at)
    resolved = recipe_from_args(args)
    from drivetrain.plan.training_plan import build_plan, plan_training

    plan = build_plan(resolved, lr_at=lr_at)
    if args.json:
        sys.stdout.write(json.dumps(plan, indent=2) + "\n")
        return 0
    from rich.console import Console

    from drivetrain.plan.render import print_plan

    training = plan_training(resolved.recipe, samples=plan["epoch"]["samples"])
    print_plan(plan, learning_rate=training.learning_rate, console=Console())
    return 0


def parse_updates(text: str) -> list[int]:
    """The updates that `--lr-at` lists."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise BadInputError(f"--lr-at {text} is not a list of updates; --lr-at 0,100,1000 works.")
    return [int(word) for word in words]
