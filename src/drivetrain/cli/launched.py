"""Fits a recipe to the ranks that torchrun, SLURM or MPI started; needs no torch."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from drivetrain.cli.options import replace_overrides, typed_overrides
from drivetrain.core.errors import BadInputError
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.recipe.checks.replicas import PartialReplicaError
from drivetrain.recipe.load import ResolvedRecipe

__all__ = ["resolve_for_ranks"]

_REPLICA_COUNTS = ("replicas", "num_replicas")
_COUNTS = (*_REPLICA_COUNTS, "devices")

Resolve = Callable[[argparse.Namespace], ResolvedRecipe]


def resolve_for_ranks(
    args: argparse.Namespace, place: RankPlace | None, *, resolve: Resolve
) -> ResolvedRecipe:
    """The recipe with one device per started rank, whatever number of replicas a recipe file has.

    A number that was typed must fit the ranks, or it is an error.
    """
    if place is None or place.launcher == "drivetrain":
        return resolve(args)
    typed = typed_overrides(args)
    others = {name: value for name, value in typed.items() if name not in _COUNTS}
    replace_overrides(args, {**others, "devices": str(place.world_size)})
    try:
        resolved = resolve(args)
    except PartialReplicaError as error:
        raise BadInputError(
            f"The {place.world_size} ranks that {place.launcher} started do not fit a whole number of "
            f"replicas, as a replica takes {error.per_replica}; start "
            f"{' or '.join(map(str, error.working))} ranks."
        ) from error
    _require_same_counts(typed, place=place, replicas=resolved.recipe.replicas)
    return resolved


def _require_same_counts(typed: Mapping[str, Any], *, place: RankPlace, replicas: int) -> None:
    for name in _COUNTS:
        is_count, number = name in typed, replicas if name in _REPLICA_COUNTS else place.world_size
        if is_count and str(typed[name]) != str(number):
            raise BadInputError(
                f"--{name.replace('_', '-')} {typed[name]} does not fit the {place.world_size} ranks that "
                f"{place.launcher} started; --{name.replace('_', '-')} {number} works, or leave it out."
            )
