"""`drivetrain crossval`: trains every fold of a recipe as one job, or continues it."""

import argparse
import os
from pathlib import Path

from drivetrain.cli.options import add_recipe_options, continued_recipe
from drivetrain.core.errors import BadInputError
from drivetrain.ranks.find_place import find_place
from drivetrain.recipe.checks.folds import require_crossval
from drivetrain.store.crossval_directory import CrossvalDirectory
from drivetrain.store.directory import check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_options(parser)


def run(args: argparse.Namespace) -> int:
    place = find_place(os.environ)
    if place is not None:
        raise BadInputError(
            f"crossval starts its own ranks and cannot run under {place.launcher}; start it directly, with "
            f"--devices {place.world_size}."
        )
    resolved = continued_recipe(args, stored_recipe=_stored_recipe)
    require_crossval(resolved.recipe)
    from drivetrain.crossvalidation.job import crossval_resolved
    from drivetrain.crossvalidation.reporter import CrossvalReporter
    from drivetrain.run.stopping import process_began_s

    with CrossvalReporter(verbosity=resolved.recipe.verbosity) as reporter:
        return crossval_resolved(resolved, reporter=reporter, began_s=process_began_s()).exit_status


def _stored_recipe(path: Path) -> Path | None:
    check_writable(path)
    stored = CrossvalDirectory(path).recipe
    return stored if stored.is_file() else None
