"""`drivetrain train`: trains (and validates) a recipe, or continues its run."""

import argparse
import os
from pathlib import Path

from drivetrain.cli.launched import fit_to_ranks
from drivetrain.cli.options import add_recipe_options, continued_recipe
from drivetrain.cluster.environment import find_place
from drivetrain.errors import BadInputError
from drivetrain.run.directory import RunDirectory
from drivetrain.run.prepare import prepare_request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_options(parser)


def run(args: argparse.Namespace) -> int:
    place = find_place(os.environ)
    fit_to_ranks(args, place)
    resolved = continued_recipe(args, stored_recipe=_stored_recipe)
    if resolved.recipe.parallel_folds > 1:
        raise BadInputError(
            f"--parallel-folds {resolved.recipe.parallel_folds} is for crossval, and train trains one fold; "
            "leave it out."
        )
    request = prepare_request(resolved)
    if resolved.recipe.replicas > 1:
        from drivetrain.run.ranks import launch_training, train_as_rank

        result = launch_training(resolved) if place is None else train_as_rank(place, request)
        return result.exit_status
    from drivetrain.run.reporter import Reporter
    from drivetrain.run.train import train_request

    with Reporter(verbosity=resolved.recipe.verbosity) as reporter:
        return train_request(request, reporter=reporter).exit_status


def _stored_recipe(path: Path) -> Path | None:
    directory = RunDirectory(path)
    return directory.recipe if directory.holds_run else None
