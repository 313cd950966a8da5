"""`drivetrain train`: trains (and validates) a recipe, or continues its run."""

import argparse
from pathlib import Path

from drivetrain.cli.options import add_recipe_options, recipe_from_args
from drivetrain.recipe.load import ResolvedRecipe, read_recipe_yaml
from drivetrain.run.directory import RunDirectory
from drivetrain.run.prepare import prepare_request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_options(parser)


def run(args: argparse.Namespace) -> int:
    resolved = _resolve(args)
    request = prepare_request(resolved)
    from drivetrain.run.reporter import Reporter
    from drivetrain.run.train import train_request

    with Reporter(verbosity=resolved.recipe.verbosity) as reporter:
        return train_request(request, reporter=reporter).exit_status


def _resolve(args: argparse.Namespace) -> ResolvedRecipe:
    """A bare `train --output-dir RUN` continues that run as it was asked for."""
    resolved = recipe_from_args(args)
    recipe = resolved.recipe
    names_recipe = args.config is not None or args.config_path is not None
    if names_recipe or recipe.output_dir is None or recipe.overwrite:
        return resolved
    directory = RunDirectory(Path(recipe.output_dir))
    if not directory.holds_run:
        return resolved
    return recipe_from_args(args, base=read_recipe_yaml(directory.recipe))
