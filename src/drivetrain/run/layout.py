"""Fits a recipe to the ranks that another program has started already; nothing here needs torch."""

from dataclasses import replace

from drivetrain.cluster.rank_place import RankPlace
from drivetrain.errors import BadInputError
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.messages import DEFAULT

__all__ = ["fit_to_ranks"]


def fit_to_ranks(resolved: ResolvedRecipe, place: RankPlace | None) -> ResolvedRecipe:
    """The recipe with one replica for each rank that torchrun, SLURM or MPI started."""
    if place is None or place.launcher == "drivetrain":
        return resolved
    recipe, world = resolved.recipe, place.world_size
    is_asked = any(resolved.origins.get(field, DEFAULT) != DEFAULT for field in ("replicas", "devices"))
    if is_asked and recipe.replicas != world:
        raise BadInputError(
            f"--replicas {recipe.replicas} does not fit the {world} ranks that {place.launcher} started; "
            f"--replicas {world} works, or leave it out."
        )
    if world % recipe.dbn_replica_group_size:
        raise BadInputError(
            f"--dbn-replica-group-size {recipe.dbn_replica_group_size} does not divide the {world} ranks "
            f"that {place.launcher} started; --dbn-replica-group-size 1 works."
        )
    return replace(resolved, recipe=recipe.model_copy(update={"replicas": world}))
