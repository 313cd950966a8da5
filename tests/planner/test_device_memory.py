"""The parts of a device's memory that do not follow from the model's tensors."""

from typing import Any

import pytest

from drivetrain.plan.stage_report import memory_of_run
from drivetrain.planner.device_memory import WORKSPACE_BYTES, device_memories
from drivetrain.planner.devices.target import Target, find_target
from tests.planner.plans import ROUND, planned


def parts(target: Target, **options: Any) -> dict[str, int]:
    run = planned(**options)
    prediction = memory_of_run(run.outline).prediction
    assert prediction is not None
    return dict(device_memories(run, prediction, target=target)[0].parts)


@pytest.mark.parametrize(
    ("options", "workspaces"),
    [
        ({}, 3),
        ({"capture": "off"}, 2),
        ({"replicas": 2}, 2),
        ({"dataset": "synthetic-em", "model": "unet_same", "image_size": 32}, 1),
    ],
)
def test_an_accelerator_holds_a_workspace_for_each_library_and_stream(
    options: dict[str, Any], workspaces: int
) -> None:
    target = find_target(planned().recipe, described=ROUND)
    assert parts(target, **options)["workspaces"] == workspaces * WORKSPACE_BYTES


def test_a_cpu_holds_libraries_instead() -> None:
    target = find_target(planned().recipe)
    found = parts(target)
    assert "workspaces" not in found
    assert found["libraries"] > 0


def test_compiled_code_keeps_positions_of_pooling_in_8_bits() -> None:
    target = find_target(planned().recipe, described=ROUND)
    options: dict[str, Any] = {
        "dataset": "synthetic-em",
        "model": "unet_same",
        "image_size": 32,
        "model_width": 4,
    }
    plain, compiled = (parts(target, **options, compile=mode)["activations"] for mode in ("off", "on"))
    micro = planned(**options).recipe.micro_batch_size
    # Three poolings, of 4, 8 and 16 channels.
    positions = sum(micro * 4 * 2**level * (16 // 2**level) ** 2 for level in range(3))
    assert plain - compiled == positions * 7
