"""Planned runs and devices for tests of the planner."""

from typing import Any

from drivetrain.plan.training_plan import PlannedRun, look_into
from drivetrain.planner.costs import Link
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.recipe.load import ResolvedRecipe, resolve_recipe

SMALL: dict[str, Any] = {
    "model": "cifar_resnet8",
    "dataset": "digits",
    "micro_batch_size": 8,
    "device": "cpu",
}
# Round numbers: a FLOP takes a nanosecond, and memory is so fast that only FLOPs count.
ROUND = DescribedDevice(
    name="round",
    memory_bytes=10**9,
    flops={"float32": 1e9, "bfloat16": 2e9, "float16": 2e9},
    bytes_per_s=1e30,
    efficiency=1.0,
    bandwidth_efficiency=1.0,
    host_bytes_per_s=1e30,
    devices_per_host=2,
    links={
        "device": Link(bytes_per_s=1e30, latency_s=0.0),
        "host": Link(bytes_per_s=1e6, latency_s=1e-3),
    },
)


def resolved(**options: Any) -> ResolvedRecipe:
    return resolve_recipe(overrides={**SMALL, **options})


def planned(**options: Any) -> PlannedRun:
    return look_into(resolved(**options))
