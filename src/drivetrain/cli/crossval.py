"""`drivetrain crossval`: trains every fold of a recipe as one job, or continues it."""

import argparse
from pathlib import Path

from drivetrain.cli.options import add_recipe_options, recipe_from_args
from drivetrain.recipe.check_folds import require_crossval
from drivetrain.recipe.load import ResolvedRecipe, read_recipe_yaml
from drivetrain.run.crossval_directory import CrossvalDirectory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_options(parser)


def run(args: argparse.Namespace) -> int:
    resolved = _resolve(args)
    require_crossval(resolved.recipe)
    from drivetrain.run.crossval import crossval_resolved
    from drivetrain.run.reporter import Reporter

    with Reporter(verbosity=resolved.recipe.verbosity) as reporter:
        return crossval_resolved(resolved, reporter=reporter).exit_status


def _resolve(args: argparse.Namespace) -> ResolvedRecipe:
    """A bare `crossval --output-dir DIR` continues that job as it was asked for."""
    resolved = recipe_from_args(args)
    recipe = resolved.recipe
    names_recipe = args.config is not None or args.config_path is not None
    if names_recipe or recipe.output_dir is None or recipe.overwrite:
        return resolved
    stored = CrossvalDirectory(Path(recipe.output_dir)).recipe
    return recipe_from_args(args, base=read_recipe_yaml(stored)) if stored.is_file() else resolved
