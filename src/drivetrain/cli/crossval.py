"""`drivetrain crossval`: trains every fold of a recipe as one job, or continues it."""

import argparse
import os
from pathlib import Path

from drivetrain.auto.choices import show_choices
from drivetrain.auto.configure import Rules
from drivetrain.cli.options import add_directory, add_recipe_options, continued_recipe, take_directory
from drivetrain.core.errors import BadInputError
from drivetrain.ranks.find_place import find_place
from drivetrain.recipe.checks.folds import require_crossval
from drivetrain.run.stopping import process_began_s
from drivetrain.store.crossval_directory import CrossvalDirectory
from drivetrain.store.directory import check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_recipe_options(parser)


def run(args: argparse.Namespace) -> int:
    place = find_place(os.environ)
    if place is not None:
        raise BadInputError(
            f"crossval starts its own ranks and cannot run under {place.launcher}; start it directly, with "
            f"--devices {place.world_size}."
        )
    take_directory(args)
    rules = Rules(
        stored_recipe=_stored_recipe,
        splits_budget=True,
        began_s=process_began_s(),
        check=require_crossval,
    )
    resolved = continued_recipe(args, rules=rules)
    require_crossval(resolved.recipe)
    from drivetrain.crossvalidation.job import crossval_resolved
    from drivetrain.crossvalidation.reporter import CrossvalReporter

    with CrossvalReporter(verbosity=resolved.recipe.verbosity) as reporter:
        show_choices(resolved, reporter=reporter)
        return crossval_resolved(resolved, reporter=reporter, began_s=process_began_s()).exit_status


def _stored_recipe(path: Path) -> Path | None:
    check_writable(path)
    return CrossvalDirectory(path).recipe_to_continue
