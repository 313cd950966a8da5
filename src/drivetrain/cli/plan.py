"""`drivetrain plan`: prints what a recipe would do, without training anything."""

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from drivetrain.auto.choices import choice_rows
from drivetrain.auto.configure import Rules
from drivetrain.auto.opened import with_fingerprint
from drivetrain.auto.saved_recipe import check_new_file, save_recipe
from drivetrain.cli.options import add_directory, add_recipe_options, recipe_from_args, take_directory
from drivetrain.cli.planning.search_options import add_memory_limit, memory_limit_of, take_search
from drivetrain.core.errors import BadInputError
from drivetrain.planner.devices.described_device import described_for
from drivetrain.recipe.load import ResolvedRecipe


def add_arguments(parser: ArgumentParser) -> None:
    """The options of the command."""
    add_directory(parser)
    add_recipe_options(parser)
    add_memory_limit(
        parser, help_text="the memory that training may use on each device, for example 8GB (default: all)"
    )
    parser.add_argument(
        "--search",
        action="store_true",
        help="search the layout with the shortest update: print the ten best, and plan the first one",
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument(
        "--lr-at", metavar="UPDATES", default="", help="print the learning rate at these updates: 0,100,1000"
    )
    parser.add_argument(
        "--save-recipe",
        metavar="FILE",
        help="write the recipe with all choices, for --config-path FILE",
    )
    parser.add_argument(
        "--pictures",
        metavar="DIR",
        help="draw the predicted update: timeline.png and .svg, memory.png, timeline.json (Chrome trace)",
    )
    parser.add_argument(
        "--measure",
        choices=("auto", "on", "off"),
        default="auto",
        help=(
            "time some updates on this machine, to say how long training takes; auto does it where that "
            "takes seconds, and keeps the answer (default: auto)"
        ),
    )
    parser.add_argument(
        "--device-file",
        metavar="FILE",
        help="plan for the device that this YAML file describes, or for a described one: a100-80gb, h200",
    )


def run(args: Namespace) -> int:
    """Prints the plan of the recipe."""
    lr_at = parse_updates(args.lr_at)
    take_directory(args)
    saved = None if args.save_recipe is None else Path(args.save_recipe)
    if saved is not None:
        check_new_file(saved)
    pictures = None if args.pictures is None else Path(args.pictures)
    if pictures is not None:
        from drivetrain.planner.drawing.draw_plan import check_picture_folder

        check_picture_folder(pictures)
    described = None if args.device_file is None else described_for(args.device_file, measure=args.measure)
    limit = memory_limit_of(args)
    asked = take_search(args, searches=args.search, limits_alone=True)
    resolved = with_fingerprint(recipe_from_args(args, rules=Rules(splits_budget=True), keeps_stdout=True))
    from drivetrain.console.reporter import Reporter
    from drivetrain.plan.training_plan import plan_training
    from drivetrain.planner.asked_plan import make_asked_plan

    with Reporter(to_stderr=True, verbosity=resolved.recipe.verbosity) as reporter:
        made = make_asked_plan(
            resolved,
            asked=asked,
            lr_at=lr_at,
            device=described,
            memory_limit_bytes=limit,
            measure=args.measure,
            pictures=pictures,
            reporter=reporter,
        )
    plan, resolved = made.plan, made.resolved
    if saved is not None:
        save_recipe(resolved, saved)
    if args.json:
        sys.stdout.write(json.dumps(plan | _choices(resolved), indent=2) + "\n")
        return 0
    from rich.console import Console

    from drivetrain.plan.render import print_plan
    from drivetrain.plan.render_choices import print_choices
    from drivetrain.planner.render import print_estimate

    console = Console()
    if made.search is not None:
        from drivetrain.planner.search.table import print_search

        print_search(made.search, console=console)
    print_choices(resolved.notes, choice_rows(resolved), console=console)
    training = plan_training(resolved.recipe, samples=plan["epoch"]["samples"])
    print_plan(plan, learning_rate=training.learning_rate, console=console)
    print_estimate(plan, console=console)
    if made.drawn is not None:
        console.print(made.drawn, highlight=False, markup=False, soft_wrap=True)
    return 0


def _choices(resolved: ResolvedRecipe) -> dict[str, object]:
    if not resolved.reasons:
        return {}
    rows = [{"option": option, "value": value, "reason": why} for option, value, why in choice_rows(resolved)]
    return {"notes": list(resolved.notes), "choices": rows, "fingerprint": resolved.fingerprint}


def parse_updates(text: str) -> list[int]:
    """The updates that `--lr-at` lists."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise BadInputError(f"--lr-at {text} is not a list of updates; --lr-at 0,100,1000 works.")
    return [int(word) for word in words]
