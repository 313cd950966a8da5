"""Smaller micro-batches keep the global batch, and what batch norm normalises together where they can."""

from typing import Any

import pytest

from drivetrain.recipe.layout import batch_of
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.smaller_batch import fitted_values, refitted, smaller_recipes

Sizes = list[tuple[int, int, int]]


def _sizes(recipe: Recipe, *, normalises: bool = False, may_change_set: bool = False) -> Sizes:
    found = list(smaller_recipes(recipe, normalises=normalises, may_change_set=may_change_set))
    batches = [batch_of(each) for each in found]
    assert {batch.global_batch for batch in batches} <= {batch_of(recipe).global_batch}
    groups = [each.dbn_replica_group_size for each in found]
    return [(batch.micro, batch.accumulation, group) for batch, group in zip(batches, groups, strict=True)]


def test_half_comes_first_and_the_accumulation_makes_up_for_it() -> None:
    assert _sizes(Recipe(micro_batch_size=8)) == [(4, 2, 1), (2, 4, 1), (1, 8, 1)]
    assert _sizes(Recipe(micro_batch_size=8, gradient_accumulation_count=3))[0] == (4, 6, 1)
    # 50 is rounded to 48.
    assert _sizes(Recipe(micro_batch_size=8, global_batch_size=50))[0] == (4, 12, 1)
    assert _sizes(Recipe(micro_batch_size=7, gradient_accumulation_count=2)) == [(2, 7, 1), (1, 14, 1)]
    assert _sizes(Recipe(micro_batch_size=1)) == []


@pytest.mark.parametrize(
    ("options", "kept", "changed"),
    [
        ({"replicas": 1}, [], [(4, 2, 1), (2, 4, 1), (1, 8, 1)]),
        ({"replicas": 4}, [(4, 2, 2), (2, 4, 4)], [(4, 2, 2), (2, 4, 4), (1, 8, 1)]),
        ({"replicas": 4, "dbn_replica_group_size": 4}, [], [(4, 2, 4), (2, 4, 4), (1, 8, 4)]),
    ],
)
def test_more_replicas_normalise_together_where_there_are_enough(
    options: dict[str, Any], kept: Sizes, changed: Sizes
) -> None:
    recipe = Recipe(micro_batch_size=8, **options)
    assert _sizes(recipe, normalises=True) == kept
    assert _sizes(recipe, normalises=True, may_change_set=True) == changed


def test_what_was_used_is_used_again_in_another_layout() -> None:
    recipe = Recipe(micro_batch_size=8, replicas=4, global_batch_size=32)
    used = fitted_values(next(smaller_recipes(recipe, normalises=True, may_change_set=False)))
    assert used == {
        "micro_batch_size": 4,
        "dbn_replica_group_size": 2,
        "validation_micro_batch_size": None,
        "recomputation": False,
    }
    on_two = refitted(recipe.model_copy(update={"replicas": 2}), used)
    assert on_two is not None
    assert batch_of(on_two).accumulation == 4
    assert refitted(recipe.model_copy(update={"replicas": 1}), used) is None
