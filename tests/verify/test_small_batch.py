"""The batch of a verification."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.given import Given
from drivetrain.recipe.load import resolve_recipe
from drivetrain.verify.cuts import Cut
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
    ("options", "cut", "total"),
    [
        ({"stages": 2}, Cut(accumulation=2, stages=2), 8),
        ({"stages": 4}, Cut(accumulation=4, stages=4), 8),
        ({"stages": 2, "replicas": 2}, Cut(replicas=2, accumulation=2, stages=2), 16),
        (
            {"stages": 2, "pipeline_schedule": "grouped"},
            Cut(accumulation=4, stages=2, schedule="grouped"),
            8,
        ),
        (
            {"stages": 2, "pipeline_schedule": "grouped", "global_batch_size": 16},
            Cut(accumulation=4, stages=2, schedule="grouped"),
            16,
        ),
        (
            {"pipeline_splits": ["a", "b", "c"], "device_mapping": [0, 1, 1, 0], "split_by": "time"},
            Cut(accumulation=4, stages=4, splits=("a", "b", "c"), split_by="time", mapping=(0, 1, 1, 0)),
            8,
        ),
        ({"recomputation": True}, Cut(accumulation=2, recomputation=True), 8),
        (
            {"stages": 2, "stage_options": ["{stage: 1, recomputation: true}"]},
            Cut(accumulation=2, stages=2, recomputation=(1,)),
            8,
        ),
        (
            {"stages": 2, "optimise_for": "balanced"},
            Cut(accumulation=2, stages=2, recomputation=(0,)),
            8,
        ),
        (
            {"stages": 2, "optimise_for": "memory"},
            Cut(accumulation=2, stages=2, recomputation=True, offloading=True),
            8,
        ),
    ],
)
def test_the_recipes_own_stages_have_micro_batches_enough(
    options: dict[str, Any], cut: Cut, total: int
) -> None:
    batch = _batch(**options)
    assert batch.own == (cut,)
    assert (batch.global_batch, batch.notes) == (total, ())


def test_stages_on_many_devices_are_played_by_one_process() -> None:
    batch = _batch(stages=4, replicas=2)
    (cut,) = batch.own
    assert (cut.ranks, cut.stages, cut.accumulation * batch.micro) == (1, 4, batch.global_batch)
    assert "2 replicas x 4 devices need more than the 4 processes" in batch.notes[0]


@pytest.mark.parametrize(
    ("options", "works"),
    [
        ({"global_batch_size": 10, "micro_batch_size": 4}, "--global-batch-size 8 works"),
        ({"global_batch_size": 7, "replicas": 2}, "--global-batch-size 8 works"),
        (
            {"stages": 2, "pipeline_schedule": "grouped", "gradient_accumulation_count": 6},
            "--gradient-accumulation-count 4 or 8 works",
        ),
    ],
)
def test_batches_that_cannot_be_cut_are_refused(options: dict[str, Any], works: str) -> None:
    with pytest.raises(BadInputError, match=works):
        _batch(**options)


def test_it_is_half_as_large_for_a_quick_verification() -> None:
    for options, micro, total in (({}, 2, 4), ({"stages": 4}, 2, 8), ({"global_batch_size": 8}, 2, 8)):
        resolved = resolve_recipe(overrides={"dataset": "digits", **options})
        batch = choose_batch(Given(resolved.recipe, resolved.origins), quick=True)
        assert (batch.micro, batch.global_batch) == (micro, total)
