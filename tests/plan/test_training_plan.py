"""The whole plan of a recipe, as numbers for `train` and as plain values for `plan --json`."""

import json
import subprocess
import sys
from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.plan.training_plan import build_plan, plan_training
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe

CIFAR: dict[str, Any] = {
    "model": "cifar_resnet8",
    "dataset": "synthetic",
    "dataset_size": 50000,
    "micro_batch_size": 8,
    "gradient_accumulation_count": 8,
    "num_epochs": 6,
}


def _plan(lr_at: tuple[int, ...] = (), **overrides: Any) -> dict[str, Any]:
    return build_plan(resolve_recipe(overrides=overrides), lr_at=lr_at)


def test_plan_of_the_worked_example() -> None:
    plan = _plan(**CIFAR, logs_per_epoch="10")
    assert plan["batch"] == {"micro": 8, "replicas": 1, "accumulation": 8, "global": 64}
    assert plan["epoch"] == {
        "samples": 50000,
        "weight_updates": 781,
        "micro_batches": 6248,
        "samples_unused": 16,
    }
    assert plan["execution"] == {"micro_batches": 568, "weight_updates": 71, "logs_per_epoch": 11}
    assert plan["total_updates"] == 4686
    assert plan["normalised_set"] == 8
    assert plan["input"] == {"channels": 3, "image_size": 32, "num_classes": 10}
    assert plan["model"]["name"] == "cifar_resnet8"
    assert plan["model"]["parameters"] == plan["model"]["trainable"] == 75290
    assert plan["model"]["buffers"] == 480
    assert len(plan["warnings"]) == 2


def test_plan_is_plain_json() -> None:
    plan = _plan((0, 10), **CIFAR)
    assert json.loads(json.dumps(plan)) == plan


def test_learning_rate_at_the_updates_asked_for() -> None:
    params = {"initial_learning_rate": 0.0001220703125, "epochs_to_total_decay": 6}
    plan = _plan((0, 2343, 4686, 9999), **CIFAR, lr_schedule="cosine", lr_schedule_params=params)
    assert list(plan["learning_rate"]) == ["0", "2343", "4686", "9999"]
    assert list(plan["learning_rate"].values()) == pytest.approx([0.0078125, 0.00390625, 0, 0], abs=1e-15)
    assert plan["learning_rate_peak"] == 0.0078125
    assert (
        plan["learning_rate_origin"] == "initial_learning_rate 0.0001220703125 per sample x global batch 64"
    )


def test_updates_before_the_first_have_no_rate() -> None:
    with pytest.raises(BadInputError, match="--lr-at -1"):
        _plan((5, -1), **CIFAR)


def test_steps_of_an_execution_are_those_of_one_replica() -> None:
    plan = _plan(**{**CIFAR, "replicas": 2})
    assert plan["batch"]["global"] == 128
    assert plan["epoch"]["micro_batches"] == 390 * 16
    assert plan["execution"]["micro_batches"] == 390 * 8


def test_warnings_of_every_part_are_listed() -> None:
    plan = _plan(model="cifar_resnet8", global_batch_size=100, logs_per_epoch="5", max_updates=10**6)
    text = "\n".join(plan["warnings"])
    for option in (
        "--dataset",
        "--global-batch-size 100",
        "--remainder",
        "--max-updates 1000000",
        "--logs-per-epoch 5",
    ):
        assert option in text


def test_train_plans_with_the_samples_it_has() -> None:
    plan = plan_training(Recipe(micro_batch_size=64, num_epochs=3, max_updates=1000), samples=60000)
    assert (plan.epochs.weight_updates, plan.epochs.total_updates) == (937, 1000)
    assert plan.learning_rate.at(1000) == 0.0
    assert plan.events.next_event(937) == 1000
    assert len(plan.warnings) == 1


def test_planning_a_training_needs_no_torch() -> None:
    code = (
        "import sys; from drivetrain.plan.training_plan import plan_training; "
        "from drivetrain.recipe.schema import Recipe; plan_training(Recipe(), samples=100); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
