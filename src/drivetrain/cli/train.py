"""`drivetrain train`: trains (and validates) a recipe, or continues its run."""

import argparse
import os
from functools import partial
from pathlib import Path

from drivetrain.cli.bench_alias import add_benchmark_options, bench_instead, is_benchmark
from drivetrain.cli.launched import resolve_for_ranks
from drivetrain.cli.options import add_recipe_options, continued_recipe
from drivetrain.console.reporter import Reporter
from drivetrain.ranks.environment import find_place
from drivetrain.ranks.launched_rank import launched_rank
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.recipe.checks.folds import require_one_training
from drivetrain.recipe.layout import rank_count
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.run.request import prepare_request
from drivetrain.run.time_limit import process_began_s
from drivetrain.store.directory import RunDirectory, check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_options(parser)
    add_benchmark_options(parser)


def run(args: argparse.Namespace) -> int:
    if is_benchmark(args):
        return bench_instead(args)
    place = find_place(os.environ)
    resolve = partial(continued_recipe, stored_recipe=_stored_recipe)
    resolved = resolve_for_ranks(args, place, resolve=resolve)
    require_one_training(resolved.recipe)
    return _train(resolved) if place is None else _train_as_rank(resolved, place)


def _train(resolved: ResolvedRecipe) -> int:
    with Reporter(verbosity=resolved.recipe.verbosity) as reporter:
        return _train_reporting(resolved, reporter)


def _train_reporting(resolved: ResolvedRecipe, reporter: Reporter) -> int:
    # Whatever is wrong with a request is said before torch is imported.
    request = prepare_request(resolved, began_s=process_began_s(), reporter=reporter)
    if rank_count(resolved.recipe) > 1:
        from drivetrain.run.ranks import launch_training

        spec, began_s = request.data.spec, request.began_s
        # Ranks open the data by themselves.
        del request
        return launch_training(resolved, spec=spec, began_s=began_s).exit_status
    from drivetrain.run.train import train_request

    return train_request(request, reporter=reporter).exit_status


def _train_as_rank(resolved: ResolvedRecipe, place: RankPlace) -> int:
    with launched_rank(place):
        with Reporter(verbosity=resolved.recipe.verbosity, quiet=place.rank > 0) as reporter:
            request = prepare_request(resolved, began_s=process_began_s(), reporter=reporter)
        from drivetrain.run.ranks import train_as_rank

        return train_as_rank(place, request).exit_status


def _stored_recipe(path: Path) -> Path | None:
    check_writable(path)
    directory = RunDirectory(path)
    return directory.recipe if directory.binds else None
