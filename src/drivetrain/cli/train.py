"""`drivetrain train`: trains (and validates) a recipe, or continues its run."""

import argparse
import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from drivetrain.auto.choices import show_choices
from drivetrain.auto.configure import Rules
from drivetrain.cli.bench_alias import add_benchmark_options, bench_instead, is_benchmark
from drivetrain.cli.launched import resolve_for_ranks
from drivetrain.cli.options import add_directory, add_recipe_options, continued_recipe, take_directory
from drivetrain.cli.planning.search_options import add_memory_limit, memory_limit_of, resolve_searched
from drivetrain.console.reporter import Reporter
from drivetrain.ranks.find_place import find_place
from drivetrain.ranks.launched_rank import launched_rank
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.recipe.checks.folds import require_one_fold, require_one_training
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.run.request import prepare_request
from drivetrain.run.stopping import process_began_s
from drivetrain.store.directory import RunDirectory, check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_recipe_options(parser)
    add_memory_limit(parser)
    add_benchmark_options(parser)


def run(args: argparse.Namespace) -> int:
    if is_benchmark(args):
        return bench_instead(args)
    take_directory(args)
    place = find_place(os.environ)
    resolve = partial(resolve_for_ranks, resolve=partial(continued_recipe, rules=_rules(place)))
    resolved = resolve_searched(args, place, resolve=resolve, stored_recipe=_stored_recipe)
    require_one_training(resolved.recipe)
    with nullcontext() if place is None else launched_rank(place):
        return _train(resolved, place, memory_limit_bytes=memory_limit_of(args))


def _train(resolved: ResolvedRecipe, place: RankPlace | None, *, memory_limit_bytes: int | None) -> int:
    is_quiet = place is not None and place.rank > 0
    with Reporter(verbosity=resolved.recipe.verbosity, quiet=is_quiet) as reporter:
        return _prepare_and_start(resolved, place, reporter, memory_limit_bytes=memory_limit_bytes)


def _prepare_and_start(
    resolved: ResolvedRecipe, place: RankPlace | None, reporter: Reporter, *, memory_limit_bytes: int | None
) -> int:
    # Errors in the request are reported before torch is imported, which is slow.
    show_choices(resolved, reporter=reporter)
    prepared = [prepare_request(resolved, began_s=process_began_s(), reporter=reporter)]
    from drivetrain.run.start import start_training

    # Ranks of another launcher might see different free memory; they only recover while they train.
    if resolved.recipe.fit and place is None:
        from drivetrain.planner.fit import fit_request

        prepared = [fit_request(prepared.pop(), memory_limit_bytes=memory_limit_bytes, reporter=reporter)]
    return start_training(prepared.pop(), reporter=reporter, place=place).exit_status


def _rules(place: RankPlace | None) -> Rules:
    is_own = place is None or place.launcher == "drivetrain"
    return Rules(
        stored_recipe=_stored_recipe,
        ranks=1 if is_own or place is None else place.world_size,
        is_quiet=place is not None and place.rank > 0,
        began_s=process_began_s(),
        check=require_one_fold,
    )


def _stored_recipe(path: Path) -> Path | None:
    check_writable(path)
    return RunDirectory(path).recipe_to_continue
