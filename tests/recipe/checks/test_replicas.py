"""How many replicas there are, from whatever tells it."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.layout import batch_of, rank_count
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe


def _recipe(base: dict[str, Any] | None = None, **options: Any) -> Recipe:
    return resolve_recipe(overrides={"dataset": "digits", **options}, base=base).recipe


def test_devices_make_replicas() -> None:
    assert _recipe(devices=4).replicas == 4
    assert _recipe(devices=4, stages=2).replicas == 2
    assert rank_count(_recipe(devices=6, stages=3)) == 6
    assert _recipe(devices=4, stages=4, device_mapping=[0, 1, 1, 0]).replicas == 2


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (3, "--devices 3 does not fit a whole number .* 2 devices; --devices 2 or --devices 4 works"),
        (1, "2 works"),
    ],
)
def test_a_part_of_a_replica_is_refused(devices: int, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        _recipe(devices=devices, stages=2)


def test_both_may_be_given_where_they_agree() -> None:
    assert _recipe(devices=4, replicas=2, stages=2).replicas == 2
    for replicas in (1, 4):
        with pytest.raises(BadInputError, match=f"--devices 4 and --replicas {replicas} contradict"):
            _recipe(devices=4, replicas=replicas, stages=2)


def test_the_later_layer_tells_how_many() -> None:
    assert resolve_recipe(config="resnet50_8k", overrides={"devices": 8}).recipe.replicas == 8
    assert _recipe(base={"devices": 8}, replicas=2).replicas == 2
    assert _recipe(base={"replicas": 8}, devices=2).replicas == 2


def test_a_run_that_goes_on_keeps_its_replicas_not_its_devices() -> None:
    begun = _recipe(devices=4)
    assert begun.devices is None
    assert _recipe(base=begun.model_dump(), stages=2).replicas == 4


def test_options_of_all_ranks_do_something_for_stages_too() -> None:
    assert _recipe(stages=2, max_restarts=1, log_all_workers=True).max_restarts == 1
    assert _recipe(devices=2, max_restarts=1).max_restarts == 1
    with pytest.raises(BadInputError, match="--max-restarts 1 has no effect with --replicas 1"):
        _recipe(max_restarts=1)


def test_folds_side_by_side_are_one_process_each() -> None:
    for option in ("devices", "replicas", "stages"):
        asked: dict[str, Any] = {"folds": 2, "parallel_folds": 2, option: 2}
        with pytest.raises(BadInputError, match="on 2 devices with --parallel-folds 1"):
            _recipe(**asked)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"replicas": 2},
            "--replicas 2 makes the global batch 2 times as large: each weight update takes 64 samples "
            "instead of 32, and an epoch has fewer updates; --micro-batch-size 16 --global-batch-size 32 "
            "keeps it at 32 (add --dbn-replica-group-size 2 if the model has batch norm).",
        ),
        ({"devices": 2}, "--devices 2 makes the global batch 2 times as large"),
        (
            {"replicas": 2, "gradient_accumulation_count": 4},
            "; --global-batch-size 128 in place of --gradient-accumulation-count 4 keeps it at 128.",
        ),
        ({"replicas": 3}, "; --micro-batch-size 10 --global-batch-size 30 comes closest with 30."),
        (
            {"replicas": 2, "micro_batch_size": 1},
            "; a smaller one is impossible, as each replica needs at least one ",
        ),
        (
            {"replicas": 6, "micro_batch_size": 8, "gradient_accumulation_count": 3},
            "; --micro-batch-size 4 --global-batch-size 24 in place of --gradient-accumulation-count 3 keeps "
            "it at 24 (add --dbn-replica-group-size 2 if the model has batch norm).",
        ),
    ],
)
def test_replicas_that_enlarge_the_batch_say_so(options: dict[str, Any], words: str) -> None:
    (warning,) = resolve_recipe(overrides={"dataset": "digits", **options}).warnings
    assert words in warning


@pytest.mark.parametrize(
    "kept",
    [
        {"replicas": 2, "micro_batch_size": 16, "global_batch_size": 32},
        {"replicas": 2, "global_batch_size": 128},
        {"replicas": 3, "micro_batch_size": 10, "global_batch_size": 30},
        {"stages": 2},
    ],
)
def test_the_advice_works_and_is_quiet(kept: dict[str, Any]) -> None:
    resolved = resolve_recipe(overrides={"dataset": "digits", **kept})
    assert resolved.warnings == ()
    if kept.get("global_batch_size"):
        assert batch_of(resolved.recipe).global_batch == kept["global_batch_size"]


def test_a_file_that_sets_replicas_and_micro_batch_knows_its_batch() -> None:
    assert resolve_recipe(config="resnet50_1536").warnings == ()
    (warning,) = resolve_recipe(config="resnet50_1536", overrides={"replicas": 2}).warnings
    assert "--replicas 2 makes the global batch 2 times as large" in warning
