"""The search for a layout on the command line: `auto`, --memory-limit and `plan --search`."""

import argparse
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from drivetrain.auto.opened import with_fingerprint
from drivetrain.cli.options import recipe_from_args, replace_overrides, typed_overrides
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.planner.devices.sizes import parse_bytes
from drivetrain.planner.search.asked import AskedSearch, take_auto
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.recipe.fields import plain_values
from drivetrain.recipe.load import ResolvedRecipe, read_recipe_yaml
from drivetrain.recipe.messages import RUN_DIRECTORY
from drivetrain.recipe.schema import field_note
from drivetrain.store.directory import DEFAULT_PARENT

__all__ = ["add_memory_limit", "memory_limit_of", "resolve_searched", "take_search"]


_OF_TRAINING = (
    "memory that each device may use, such as 8GB; with --fit, or with --stages auto or --replicas auto, "
    "which let a search choose the layout"
)


def add_memory_limit(parser: argparse.ArgumentParser, *, help_text: str = _OF_TRAINING) -> None:
    """The option that limits the search."""
    parser.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help=help_text,
    )


def take_search(
    args: argparse.Namespace, *, searches: bool = False, limits_alone: bool = False
) -> AskedSearch | None:
    """What the arguments ask of the search; they keep the other options."""
    asked, others = take_auto(
        typed_overrides(args),
        memory_limit=args.memory_limit,
        searches=searches,
        limits_alone=limits_alone,
    )
    replace_overrides(args, others)
    return asked


def resolve_searched(
    args: argparse.Namespace,
    place: RankPlace | None,
    *,
    resolve: Callable[[argparse.Namespace, RankPlace | None], ResolvedRecipe],
    stored_recipe: Callable[[Path], Path | None],
) -> ResolvedRecipe:
    """The recipe of a training, with the layout that a search chooses; a continued run keeps its own."""
    asked = take_search(args, limits_alone=_fits(args))
    if asked is not None and place is not None and place.world_size > 1:
        raise BadInputError(
            f"{place.world_size} started processes cannot each search a layout; let one choose with "
            "`drivetrain plan --search --save-recipe recipe.yaml` and your other options, then start all "
            "with --config-path recipe.yaml."
        )
    resolved = resolve(args, place)
    if asked is None or resolved.origins["model"] == RUN_DIRECTORY:
        return resolved
    path = _path_of(resolved)
    stored = None if resolved.recipe.overwrite else stored_recipe(path)
    if stored is not None:
        replace_overrides(args, {**typed_overrides(args), "output_dir": str(path)})
        return recipe_from_args(args, base=read_recipe_yaml(stored))
    # Without `auto` nothing of this is needed, and it imports torch, which is slow.
    from drivetrain.planner.search.resolve import search_recipe

    with Reporter(verbosity=resolved.recipe.verbosity) as reporter:
        result, found = search_recipe(with_fingerprint(resolved), asked, reporter=reporter)
    recipe = found.recipe.model_copy(update={"output_dir": str(path)})
    return replace(found, recipe=recipe, notes=(*found.notes, result.how_sure))


def memory_limit_of(args: argparse.Namespace) -> int | None:
    """The bytes of --memory-limit."""
    return None if args.memory_limit is None else parse_bytes(args.memory_limit, what="--memory-limit")


def _fits(args: argparse.Namespace) -> bool:
    return str(typed_overrides(args).get("fit", False)).lower() == "true"


def _path_of(resolved: ResolvedRecipe) -> Path:
    """The run directory: the same request finds the same one, whichever layout the search finds."""
    if resolved.recipe.output_dir is not None:
        return Path(resolved.recipe.output_dir)
    values = plain_values(resolved.recipe)
    kept = {name: str(value) for name, value in values.items() if not field_note(name).may_change}
    text = json.dumps(kept, sort_keys=True)
    return DEFAULT_PARENT / f"{resolved.name}-auto-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
