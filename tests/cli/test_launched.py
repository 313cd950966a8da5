"""Ranks that another program started decide how many replicas there are."""

import argparse

import pytest

from drivetrain.cli.launched import resolve_for_ranks
from drivetrain.cli.options import add_recipe_options, recipe_from_args
from drivetrain.core.errors import BadInputError
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.recipe.layout import rank_count
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


def _args(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_recipe_options(parser)
    return parser.parse_args(argv)


def _fitted(*argv: str, place: RankPlace | None = PLACE) -> Recipe:
    args = _args(*argv)
    return resolve_for_ranks(args, place, resolve=recipe_from_args).recipe


def test_they_replace_what_a_recipe_says() -> None:
    assert _fitted("--config", "resnet50_8k").replicas == 8
    assert _fitted("--config", "resnet50_8k", place=None).replicas == 4
    assert _fitted("--dbn-replica-group-size", "8").dbn_replica_group_size == 8


def test_a_recipe_of_stages_gets_as_many_replicas_as_the_ranks_hold() -> None:
    assert rank_count(_fitted("--stages", "2")) == 8
    assert _fitted("--stages", "2").replicas == 4
    assert _fitted("--config", "resnet50_8k", "--stages", "4", "--replicas", "2").replicas == 2
    assert _fitted("--stages", "4", "--device-mapping", "0", "1", "1", "0", "--devices", "8").replicas == 4
    with pytest.raises(BadInputError, match=r"--replicas 8 does not fit .* --replicas 4 works"):
        _fitted("--stages", "2", "--replicas", "8")


def test_ranks_that_hold_no_whole_replica_are_told_how_many_would() -> None:
    words = (
        "The 8 ranks that torchrun started do not fit a whole number of replicas, as a replica takes 3; "
        "start 6 or 9"
    )
    with pytest.raises(BadInputError, match=words):
        _fitted("--stages", "3")
    with pytest.raises(BadInputError, match=r"start 16 ranks\.$"):
        _fitted("--stages", "16")


def test_the_stages_of_a_run_that_goes_on_count() -> None:
    resolved = resolve_for_ranks(
        _args(), PLACE, resolve=lambda args: recipe_from_args(args, base={"stages": 2, "replicas": 1})
    )
    assert (resolved.recipe.stages, resolved.recipe.replicas) == (2, 4)


@pytest.mark.parametrize("option", ["--replicas", "--num-replicas", "--devices"])
def test_only_a_typed_number_can_contradict_them(option: str) -> None:
    assert _fitted(option, "8").replicas == 8
    with pytest.raises(BadInputError, match=f"{option} 4 does not fit the 8 ranks that torchrun started"):
        _fitted(option, "4")
