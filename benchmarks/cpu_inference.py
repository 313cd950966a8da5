"""Inference of `resnet50` on a CPU, batch 1 and 32, against eager PyTorch in its default layout.

    python benchmarks/cpu_inference.py [--rounds 5] [--output FILE]

Ours is what `drivetrain bench infer --compile on` measures and `predict --compile on` runs: norms folded,
channels_last, compiled with the weights as constants. Beside it, what each of these steps gives. Every
contender has a process of its own that waits while the others run; they take turns at a few batches each, and
the median over all batches is compared. Images lie ready in memory; compiling is reported apart.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from drivetrain.bench.machine import describe_machine

RESULT = Path(__file__).parent / "results" / "cpu_inference-cpu-2-cores.json"
MODEL, CHANNELS, SIZE, CLASSES = "resnet50", 3, 224, 1000
GOALS = {1: 1.5, 32: 1.9}
BATCHES_PER_TURN = {1: 12, 32: 2}
TOLERANCE = 1e-4

Forward = Callable[[Any], Any]


def build_model() -> Any:
    """With weights and statistics drawn alike in every process."""
    import torch
    from torch import nn

    from drivetrain.models.create import create_model

    model = create_model(MODEL, channels=CHANNELS, image_size=SIZE, num_classes=CLASSES)
    draws = torch.Generator().manual_seed(1)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.normal_(0, 0.1, generator=draws)
            layer.running_var.uniform_(0.5, 2, generator=draws)
    return model.eval()


def build_eager() -> Forward:
    """PyTorch as it comes."""
    forward: Forward = build_model()
    return forward


def build_channels_last() -> Forward:
    import torch

    forward: Forward = build_model().to(memory_format=torch.channels_last)
    return forward


def build_ours(*, compiles: bool) -> Forward:
    import torch

    from drivetrain.devices.backend_settings import keep_freed_memory
    from drivetrain.inference.model.fold_batch_norm import fold_batch_norm
    from drivetrain.inference.model.optimised import build_inference
    from drivetrain.passes.forward import Precision

    keep_freed_memory()
    precision = Precision(compute_dtype=torch.float32, device_type="cpu")
    folded = fold_batch_norm(build_model()).model
    return build_inference(folded, precision=precision, compiles=compiles)


CONTENDERS: dict[str, Callable[[], Forward]] = {
    "eager": build_eager,
    "channels_last": build_channels_last,
    "folded": lambda: build_ours(compiles=False),
    "drivetrain": lambda: build_ours(compiles=True),
}


def serve(name: str) -> None:
    """Waits for a batch size and a number of batches on a line, runs them, and tells the seconds of each."""
    import torch

    forward = CONTENDERS[name]()
    ready: dict[int, Any] = {}
    with torch.inference_mode():
        for line in sys.stdin:
            batch, count = map(int, line.split())
            if batch not in ready:
                images = torch.rand(batch, CHANNELS, SIZE, SIZE, generator=torch.Generator().manual_seed(2))
                is_default = name == "eager"
                ready[batch] = images if is_default else images.contiguous(memory_format=torch.channels_last)
            seconds = []
            for _ in range(count):
                started = time.perf_counter()
                logits = forward(ready[batch])
                seconds.append(time.perf_counter() - started)
            print(json.dumps({"seconds": seconds, "logits": logits[0].tolist()}), flush=True)


class Contender:
    """A process that runs batches when it is told to."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        command = [sys.executable, __file__, "--serve", name]
        self._process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )

    def run(self, batch: int, count: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{batch} {count}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


def measure(contenders: dict[str, Contender], batch: int, *, rounds: int) -> dict[str, Any]:
    """All contenders in turn, `rounds` times, after a first batch of each that warms up or compiles."""
    first = {name: contender.run(batch, 1) for name, contender in contenders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            seconds[name] += contender.run(batch, BATCHES_PER_TURN[batch])["seconds"]
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    speeds = {name: round(medians["eager"] / value, 3) for name, value in medians.items()}
    difference = max(
        abs(own - other)
        for own, other in zip(first["drivetrain"]["logits"], first["eager"]["logits"], strict=True)
    )
    assert difference < TOLERANCE, f"the logits differ by {difference}"
    return {
        "median_seconds": medians,
        "speed_against_eager": speeds,
        "goal": GOALS[batch],
        "goal_met": speeds["drivetrain"] >= GOALS[batch],
        "compile_seconds": round(first["drivetrain"]["seconds"][0], 1),
        "largest_difference_of_logits": difference,
        "seconds": {name: [round(second, 5) for second in values] for name, values in seconds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", choices=GOALS, default=list(GOALS))
    parser.add_argument("--output", default=str(RESULT))
    parser.add_argument("--serve", choices=CONTENDERS, help="be one of the contenders")
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    with ExitStack() as stack:
        contenders = {name: Contender(name, stack) for name in CONTENDERS}
        found = {str(batch): measure(contenders, batch, rounds=args.rounds) for batch in args.batches}
    command = f"python benchmarks/cpu_inference.py --rounds {args.rounds}"
    result = {"command": command, "machine": describe_machine(), "model": MODEL, "batches": found}
    Path(args.output).write_text(json.dumps(result, indent=2) + "\n")
    for batch, measured in found.items():
        print(f"batch {batch}:", json.dumps(measured["median_seconds"]), measured["speed_against_eager"])


if __name__ == "__main__":
    main()
