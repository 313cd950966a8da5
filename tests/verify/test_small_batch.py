"""The batch of a verification."""

from typing import Any

import pytest

from drivetrain.errors import BadInputError
from drivetrain.recipe.given import Given
from drivetrain.recipe.load import resolve_recipe
from drivetrain.verify.layouts import Cut
from drivetrain.verify.small_batch import SmallBatch, choose_batch


def _batch(config: str | None = None, **options: Any) -> SmallBatch:
    resolved = resolve_recipe(config=config, overrides={"dataset": "digits", **options})
    return choose_batch(Given(resolved.recipe, resolved.origins))


def test_it_is_small_whatever_a_named_recipe_says() -> None:
    assert _batch() == SmallBatch(micro=4, group=1, global_batch=8)
    named = resolve_recipe(config="digits", overrides={})
    assert choose_batch(Given(named.recipe, named.origins)).micro == 4


@pytest.mark.parametrize(
    ("options", "micro", "total"),
    [
        ({"micro_batch_size": 3}, 3, 24),
        ({"micro_batch_size": 16}, 16, 32),
        ({"global_batch_size": 6}, 3, 6),
        ({"global_batch_size": 12, "micro_batch_size": 6}, 6, 12),
        ({"gradient_accumulation_count": 3, "micro_batch_size": 2}, 2, 6),
        ({"replicas": 3}, 4, 24),
    ],
)
def test_what_was_typed_is_kept(options: dict[str, Any], micro: int, total: int) -> None:
    batch = _batch(**options)
    assert (batch.micro, batch.global_batch) == (micro, total)


def test_a_typed_layout_is_verified_too() -> None:
    batch = _batch(replicas=4, dbn_replica_group_size=2, gradient_accumulation_count=2)
    assert batch.own == (Cut(replicas=4, accumulation=2, group=2),)
    assert (batch.group, batch.global_batch) == (2, 32)
    assert _batch().own == ()


@pytest.mark.parametrize(
    ("options", "works"),
    [
        ({"global_batch_size": 10, "micro_batch_size": 4}, "--global-batch-size 8 works"),
        ({"global_batch_size": 7, "replicas": 2}, "--global-batch-size 8 works"),
    ],
)
def test_batches_that_cannot_be_cut_are_refused(options: dict[str, Any], works: str) -> None:
    with pytest.raises(BadInputError, match=works):
        _batch(**options)
