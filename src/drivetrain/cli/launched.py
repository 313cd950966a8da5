"""Fits what was typed to the ranks that another program has started already; nothing here needs torch."""

import argparse

from drivetrain.cli.options import replace_override, typed_overrides
from drivetrain.cluster.rank_place import RankPlace
from drivetrain.errors import BadInputError

__all__ = ["fit_to_ranks"]

_COUNTS = ("replicas", "num_replicas", "devices")


def fit_to_ranks(args: argparse.Namespace, place: RankPlace | None) -> None:
    """One replica for each rank that torchrun, SLURM or MPI started, whatever a recipe says.

    Only a number that was typed can contradict them.
    """
    if place is None or place.launcher == "drivetrain":
        return
    typed = typed_overrides(args)
    for name in _COUNTS:
        if name in typed and str(typed[name]) != str(place.world_size):
            raise BadInputError(
                f"--{name.replace('_', '-')} {typed[name]} does not fit the {place.world_size} ranks that "
                f"{place.launcher} started; --replicas {place.world_size} works, or leave it out."
            )
    replace_override(args, "replicas", str(place.world_size))
