"""Who does the work of a command."""

import pytest

from drivetrain.ranks.rank_place import RankPlace, Start, how_to_start


def _place(world_size: int) -> RankPlace:
    return RankPlace(
        rank=0,
        world_size=world_size,
        local_rank=0,
        local_world_size=world_size,
        address="127.0.0.1",
        port=29500,
        launcher="torchrun",
    )


@pytest.mark.parametrize(
    ("world_size", "ranks", "start"),
    [
        (None, 1, Start.ALONE),
        (None, 2, Start.LAUNCHES_RANKS),
        (2, 2, Start.AS_RANK),
        (1, 1, Start.AS_RANK),
    ],
)
def test_a_launcher_goes_before_the_recipe(world_size: int | None, ranks: int, start: Start) -> None:
    place = None if world_size is None else _place(world_size)
    assert how_to_start(place, ranks=ranks) is start
