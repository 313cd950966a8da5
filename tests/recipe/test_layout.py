"""How many stages, devices and ranks a recipe asks for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.layout import (
    BatchArithmetic,
    device_of_stage,
    devices_per_replica,
    rank_count,
    resolve_batch,
    stage_count,
)
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


def _batch(
    micro: int, replicas: int, *, accumulation: int | None = None, global_batch: int | None = None
) -> BatchArithmetic:
    return resolve_batch(micro=micro, replicas=replicas, accumulation=accumulation, global_batch=global_batch)


@pytest.mark.parametrize(
    ("micro", "replicas", "accumulation", "global_batch", "per_update"),
    [
        pytest.param(3, 1, 1, 3, 1, id="case-1"),
        pytest.param(1, 4, 1, 4, 4, id="case-2"),
        pytest.param(1, 4, 4, 16, 16, id="case-3"),
        pytest.param(1, 1, 2, 2, 2, id="case-4"),
        pytest.param(3, 4, 2, 24, 8, id="case-5"),
        pytest.param(12, 16, 8, 1536, 128, id="case-15"),
    ],
)
def test_from_accumulation(
    micro: int, replicas: int, accumulation: int, global_batch: int, per_update: int
) -> None:
    batch = _batch(micro, replicas, accumulation=accumulation)
    assert (batch.micro, batch.replicas, batch.accumulation) == (micro, replicas, accumulation)
    assert (batch.global_batch, batch.micro_batches_per_update) == (global_batch, per_update)
    assert batch.warnings == ()


@pytest.mark.parametrize(
    ("micro", "replicas", "global_batch", "accumulation", "per_update"),
    [
        pytest.param(1, 1, 5, 5, 5, id="case-6"),
        pytest.param(3, 2, 12, 2, 4, id="case-7"),
        pytest.param(16, 4, 8192, 128, 512, id="case-13"),
        pytest.param(16, 4, 16384, 256, 1024, id="case-14"),
    ],
)
def test_from_global_batch(
    micro: int, replicas: int, global_batch: int, accumulation: int, per_update: int
) -> None:
    batch = _batch(micro, replicas, global_batch=global_batch)
    assert (batch.accumulation, batch.global_batch) == (accumulation, global_batch)
    assert batch.micro_batches_per_update == per_update
    assert batch.warnings == ()


def test_case_8_rounds_and_warns() -> None:
    batch = _batch(3, 2, global_batch=10)
    assert (batch.accumulation, batch.global_batch) == (2, 12)
    (warning,) = batch.warnings
    assert "--global-batch-size 10" in warning
    assert "12" in warning


@pytest.mark.parametrize(("asked", "accumulation"), [(6, 2), (10, 2), (14, 4)])
def test_halves_round_to_even(asked: int, accumulation: int) -> None:
    assert _batch(4, 1, global_batch=asked).accumulation == accumulation


def test_case_11_both_is_an_error() -> None:
    with pytest.raises(BadInputError, match=r"--gradient-accumulation-count 1 and --global-batch-size 6"):
        _batch(1, 1, accumulation=1, global_batch=6)


def test_case_12_neither_accumulates_once() -> None:
    assert _batch(8, 2).accumulation == 1


@pytest.mark.parametrize("asked", [1, 8, 16])
def test_accumulation_of_zero_names_the_smallest_batch(asked: int) -> None:
    with pytest.raises(BadInputError, match=r"--global-batch-size 32(\.|, or --micro-batch-size)"):
        _batch(16, 2, global_batch=asked)
    assert _batch(16, 2, global_batch=32).accumulation == 1


@given(micro=st.integers(1, 64), replicas=st.integers(1, 16), asked=st.integers(1, 4096))
def test_used_global_batch_is_the_nearest_possible(micro: int, replicas: int, asked: int) -> None:
    per_round = micro * replicas
    if 2 * asked <= per_round:
        return
    batch = _batch(micro, replicas, global_batch=asked)
    assert 2 * abs(batch.global_batch - asked) <= per_round
    assert bool(batch.warnings) == (batch.global_batch != asked)
    assert batch.accumulation == round(asked / micro / replicas)
