"""`drivetrain train`: trains (and validates) a recipe, or continues its run."""

import argparse
from pathlib import Path

from drivetrain.cli.options import add_recipe_options, continued_recipe
from drivetrain.run.directory import RunDirectory
from drivetrain.run.prepare import prepare_request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_options(parser)


def run(args: argparse.Namespace) -> int:
    resolved = continued_recipe(args, stored_recipe=_stored_recipe)
    request = prepare_request(resolved)
    from drivetrain.run.reporter import Reporter
    from drivetrain.run.train import train_request

    with Reporter(verbosity=resolved.recipe.verbosity) as reporter:
        return train_request(request, reporter=reporter).exit_status


def _stored_recipe(path: Path) -> Path | None:
    directory = RunDirectory(path)
    return directory.recipe if directory.holds_run else None
