"""How near a real update comes to what its schedule allows: stages that sleep, on four ranks of one machine.

    python benchmarks/pipeline_bound.py [--micro-batches 8] [--forward-ms 60] [--backward-ms 120]

Four stages, one on each rank, sleep for equal times in their forward and backward passes, so that cores do
not matter; half of a backward pass is the weights' part, which zero-bubble puts off. The whole update is
timed, from the first micro-batch to the moved weights, and its median is divided by what the simulator finds
for the same table when nothing but the stages takes time.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.assembly.training_parts import assemble
from drivetrain.bench.machine import describe_machine
from drivetrain.devices.device import choose_device
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.request import prepare_request
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.simulator import simulate

RESULTS = Path(__file__).parent / "results"
SCHEDULES = ("1f1b", "gpipe", "grouped", "zero-bubble")
STAGES = 4
WARM_UP = 1
WIDTH = 10


@dataclass(frozen=True, kw_only=True)
class Sleeps:
    """Seconds of one micro-batch in one stage."""

    forward_s: float
    input_s: float
    weight_s: float

    @property
    def backward_s(self) -> float:
        return self.input_s + self.weight_s


class SleepBackwards(torch.autograd.Function):
    """Hands its input on; on the way back it sleeps."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(ctx.seconds)
        return gradients[0], None


class SleepingLinear(nn.Linear):
    """A small layer whose passes take as long as asked; its weight's gradient has a sleep of its own."""

    def __init__(self, inputs: int, sleeps: Sleeps) -> None:
        super().__init__(inputs, WIDTH, bias=False)
        self.sleeps = sleeps

    def forward(self, values: Tensor) -> Tensor:
        if self.training:
            time.sleep(self.sleeps.forward_s)
        return SleepBackwards.apply(super().forward(values.flatten(1)), self.sleeps.input_s)  # type: ignore[no-any-return, no-untyped-call]


class SleepingModel(nn.Module):
    """As many layers as there are stages."""

    def __init__(self, *, inputs: int, sleeps: Sleeps) -> None:
        super().__init__()
        widths = [inputs] + [WIDTH] * (STAGES - 1)
        self.body = nn.Sequential(*(SleepingLinear(width, sleeps) for width in widths))

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)  # type: ignore[no-any-return]


def sleep_for_weights(model: nn.Module, seconds: float) -> None:
    """Every gradient of a weight takes its time, wherever in the table it is computed."""
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(lambda _: time.sleep(seconds))  # type: ignore[no-untyped-call]


def time_updates(
    group: ReplicaGroup, schedule: str, micro_batches: int, sleeps: Sleeps, updates: int
) -> list[float]:
    """A rank's seconds for each update, from where all ranks begin to where all have ended."""
    torch.set_num_threads(1)
    model = SleepingModel(inputs=64, sleeps=sleeps)
    options = {
        "dataset": "digits",
        "stages": STAGES,
        "pipeline_schedule": schedule,
        "pipeline_splits": tuple(f"body.{stage}" for stage in range(1, STAGES)),
        "micro_batch_size": 2,
        "gradient_accumulation_count": micro_batches,
        "limit_train_samples": 2 * micro_batches,
        "num_epochs": WARM_UP + updates,
        "optimizer": "sgd",
        "lr_schedule": "const",
        "validation": False,
        "device": "cpu",
    }
    request = prepare_request(resolve_recipe(overrides=options), own_model=lambda _: [])
    program = assemble(
        request.recipe,
        data=request.data,
        model=model,
        plan=request.plan,
        device=choose_device("cpu"),
        group=group,
    ).program
    sleep_for_weights(program.model, sleeps.weight_s)
    program.model.train()
    seconds = []
    for update in range(WARM_UP + updates):
        group.barrier()
        begun_s = time.perf_counter()
        program.run_update(update)
        group.barrier()
        seconds.append(time.perf_counter() - begun_s)
    program.feed.close()
    return seconds[WARM_UP:]


def measure(
    pool: RankPool, schedule: str, *, micro_batches: int, sleeps: Sleeps, updates: int
) -> dict[str, Any]:
    """One schedule: its bound, the median update of the slowest rank, and the one over the other."""
    table = build_schedule(schedule, micro_batches=micro_batches, device_of=tuple(range(STAGES)))
    simulation = simulate(
        table,
        forward_s=[sleeps.forward_s] * STAGES,
        backward_s=[sleeps.backward_s] * STAGES,
        weight_share=[sleeps.weight_s / sleeps.backward_s] * STAGES,
    )
    found = pool.run(time_updates, schedule, micro_batches, sleeps, updates)
    slowest = [max(steps) for steps in zip(*found, strict=True)]
    median_s = statistics.median(slowest)
    return {
        "bound_seconds": round(simulation.seconds_per_update, 4),
        "bubble_of_bound": round(simulation.bubble, 4),
        "median_seconds": round(median_s, 4),
        "over_bound": round(median_s / simulation.seconds_per_update, 4),
        "updates_seconds": [round(step, 4) for step in slowest],
    }


def measure_all(
    schedules: Sequence[str], *, micro_batches: int, sleeps: Sleeps, updates: int
) -> dict[str, dict[str, Any]]:
    """All schedules, one after the other, on the same ranks."""
    with RankPool(STAGES, timeout_s=600.0) as pool:
        return {
            schedule: measure(pool, schedule, micro_batches=micro_batches, sleeps=sleeps, updates=updates)
            for schedule in schedules
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--forward-ms", type=float, default=60.0)
    parser.add_argument("--backward-ms", type=float, default=120.0)
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--output", default=str(RESULTS / "pipeline_bound-cpu-2-cores.json"))
    args = parser.parse_args()
    half_s = args.backward_ms / 2000
    sleeps = Sleeps(forward_s=args.forward_ms / 1000, input_s=half_s, weight_s=half_s)
    load_before = os.getloadavg()[0]
    schedules = measure_all(SCHEDULES, micro_batches=args.micro_batches, sleeps=sleeps, updates=args.updates)
    result = {
        "command": f"python benchmarks/pipeline_bound.py --micro-batches {args.micro_batches} "
        f"--forward-ms {args.forward_ms:g} --backward-ms {args.backward_ms:g} --updates {args.updates}",
        "machine": describe_machine(),
        "load_before": round(load_before, 2),
        "stages": STAGES,
        "micro_batches": args.micro_batches,
        "worst_over_bound": max(found["over_bound"] for found in schedules.values()),
        "schedules": schedules,
    }
    Path(args.output).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: found["over_bound"] for name, found in schedules.items()}, indent=1))


if __name__ == "__main__":
    main()
