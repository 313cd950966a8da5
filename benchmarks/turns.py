"""Contenders that take turns at the same training step, each repeat in a process of its own."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from drivetrain.bench.machine import describe_machine

WARM_UP = 2


def step_times(ends: list[float], *, loss: float) -> dict[str, Any]:
    """What one repeat found: the seconds between the ends of steps, the first of which warm up."""
    steps = [later - earlier for earlier, later in pairwise(ends)]
    counted = steps[WARM_UP:] or steps
    return {"seconds": statistics.median(counted), "steps": [round(step, 4) for step in steps], "loss": loss}


def time_training(steps: int, *, images: int, batch: int, **options: Any) -> dict[str, Any]:
    """The command's own path, from resident data to its records, at a constant rate on the CPU."""
    from drivetrain import train

    with tempfile.TemporaryDirectory() as folder:
        ends = _time_updates(
            lambda: train(
                dataset_size=images,
                micro_batch_size=batch,
                num_epochs=-(-steps * batch // images),
                max_updates=steps,
                lr_schedule="const",
                optimizer="sgd",
                data_placement="resident",
                logs_per_epoch=0,
                validation=False,
                checkpoints=False,
                device="cpu",
                output_dir=f"{folder}/run",
                quiet=True,
                **options,
            )
        )
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    train_events = [event for event in map(json.loads, lines) if event["event"] == "train"]
    return step_times(ends, loss=train_events[-1]["loss"])


def _time_updates(train: Callable[[], object]) -> list[float]:
    """The moments at which the updates of a training of this project ended."""
    from drivetrain.program.training_program import TrainingProgram

    ends = [time.perf_counter()]
    run_update = TrainingProgram.run_update

    def timed(self: TrainingProgram, update: int) -> None:
        run_update(self, update)
        ends.append(time.perf_counter())

    TrainingProgram.run_update = timed  # type: ignore[method-assign]
    train()
    return ends


def take_turns(
    script: str,
    contenders: Mapping[str, Callable[[int], dict[str, Any]]],
    *,
    description: str | None,
    output: Path,
    steps: int,
) -> None:
    """The command line of a benchmark: all contenders in turn, or one repeat of one; writes medians."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--contender", choices=contenders, help="run one repeat of this one and print it")
    parser.add_argument("--output", default=str(output))
    args = parser.parse_args()
    if args.contender:
        print(json.dumps(contenders[args.contender](args.steps)))
        return
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for repeat in range(args.repeats):
        for name in contenders:
            found[name].append(_repeat(script, name, args.steps))
            print(f"{repeat + 1}/{args.repeats} {name}: {found[name][-1]['seconds']:.3f} s", flush=True)
    name = Path(script).name
    result = {
        "command": f"python benchmarks/{name} --repeats {args.repeats} --steps {args.steps}",
        "machine": describe_machine(),
        **_medians(found),
        "runs": found,
    }
    Path(args.output).write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({key: result[key] for key in result if key != "runs"}, indent=2))


def _repeat(script: str, contender: str, steps: int) -> dict[str, Any]:
    command = [sys.executable, script, "--contender", contender, "--steps", str(steps)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def _medians(found: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    medians = {
        name: statistics.median(step for run in runs for step in run["steps"][WARM_UP:])
        for name, runs in found.items()
    }
    own = medians["drivetrain"]
    speeds = {f"speed_against_{name}": value / own for name, value in medians.items() if name != "drivetrain"}
    return {"median_seconds": medians, **speeds}
