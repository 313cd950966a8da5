"""Ranks that another program started decide how many replicas there are."""

import argparse

import pytest

from drivetrain.cli.launched import fit_to_ranks
from drivetrain.cli.options import add_recipe_options, recipe_from_args
from drivetrain.cluster.rank_place import RankPlace
from drivetrain.errors import BadInputError
from drivetrain.recipe.schema import Recipe

PLACE = RankPlace(
    rank=0,
    world_size=8,
    local_rank=0,
    local_world_size=4,
    address="first-host",
    port=29400,
    launcher="torchrun",
)


def _fitted(*argv: str, place: RankPlace | None = PLACE) -> Recipe:
    parser = argparse.ArgumentParser()
    add_recipe_options(parser)
    args = parser.parse_args(argv)
    fit_to_ranks(args, place)
    return recipe_from_args(args).recipe


def test_they_replace_what_a_recipe_says() -> None:
    assert _fitted("--config", "resnet50_8k").replicas == 8
    assert _fitted("--config", "resnet50_8k", place=None).replicas == 4
    assert _fitted("--dbn-replica-group-size", "8").dbn_replica_group_size == 8


@pytest.mark.parametrize("option", ["--replicas", "--num-replicas", "--devices"])
def test_only_a_typed_number_can_contradict_them(option: str) -> None:
    assert _fitted(option, "8").replicas == 8
    with pytest.raises(BadInputError, match=f"{option} 4 does not fit the 8 ranks that torchrun started"):
        _fitted(option, "4")
