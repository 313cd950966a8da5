"""How many stages, devices and ranks a recipe asks for."""

from typing import Any

import pytest

from drivetrain.recipe.layout import device_of_stage, devices_per_replica, rank_count, stage_count
from drivetrain.recipe.load import resolve_recipe


@pytest.mark.parametrize(
    ("options", "stages", "device_of", "ranks"),
    [
        ({}, 1, (0,), 1),
        ({"replicas": 3}, 1, (0,), 3),
        ({"stages": 4}, 4, (0, 1, 2, 3), 4),
        ({"pipeline_splits": ["a", "b"]}, 3, (0, 1, 2), 3),
        ({"pipeline_splits": ["a", "b"], "stages": 3}, 3, (0, 1, 2), 3),
        ({"stages": 4, "device_mapping": [0, 1, 1, 0]}, 4, (0, 1, 1, 0), 2),
        ({"stages": 4, "device_mapping": [0, 1, 1, 0], "replicas": 2}, 4, (0, 1, 1, 0), 4),
        ({"stages": 2, "device_mapping": [0, 0]}, 2, (0, 0), 1),
    ],
)
def test_a_layout(options: dict[str, Any], stages: int, device_of: tuple[int, ...], ranks: int) -> None:
    recipe = resolve_recipe(overrides={"dataset": "digits", **options}).recipe
    assert stage_count(recipe) == stages
    assert device_of_stage(recipe) == device_of
    assert devices_per_replica(recipe) == max(device_of) + 1
    assert rank_count(recipe) == ranks
