"""How long `drivetrain verify --quick` takes for networks of ResNet-50's size.

    python benchmarks/verify_quick.py [--models resnet50 resnet34] [--image-size 224] [--repeats 3]
        [--output FILE.json]

Each verification is a process of its own, on generated images. A busy machine changes the times of the
processor less than those of the clock, so both are kept. `idle_clock_s` is what the clock would show on two
cores that do nothing else: the time of the main process, during which the two ranks are idle, and half the
time of the ranks, which compute at once while the main process waits.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from drivetrain.bench.machine import describe_machine

RESULTS = Path(__file__).parent / "results"
CORES = 2


def options_of(model: str, *, image_size: int) -> list[str]:
    return ["--quick", "--model", model, "--dataset", "synthetic", "--image-size", str(image_size)]


def processor_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def verify_here(model: str, *, image_size: int) -> dict[str, Any]:
    from drivetrain.cli.main import main as drivetrain

    begin_s = time.perf_counter()
    status = drivetrain(["verify", *options_of(model, image_size=image_size)])
    clock_s = time.perf_counter() - begin_s
    alone_s, ranks_s = processor_s(resource.RUSAGE_SELF), processor_s(resource.RUSAGE_CHILDREN)
    return {
        "status": status,
        "clock_s": round(clock_s, 1),
        "main_processor_s": round(alone_s, 1),
        "ranks_processor_s": round(ranks_s, 1),
        "idle_clock_s": round(alone_s + ranks_s / CORES, 1),
    }


def verify_apart(model: str, *, image_size: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", model, "--image-size", str(image_size)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found: dict[str, Any] = json.loads(lines[-1])
    return {**found, "said": lines[-2], "load_after": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["resnet50", "resnet34"])
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", default=str(RESULTS / f"verify_quick-cpu-{os.cpu_count()}-cores.json"))
    parser.add_argument("--one", metavar="MODEL", help="one verification, whose times are printed")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(verify_here(args.one, image_size=args.image_size)))
        return
    report: dict[str, Any] = {
        "command": f"python benchmarks/verify_quick.py --image-size {args.image_size} "
        f"--repeats {args.repeats}",
        "machine": describe_machine("cpu"),
        "load_before": round(os.getloadavg()[0], 1),
    }
    for model in args.models:
        runs = []
        for repeat in range(args.repeats):
            runs.append(verify_apart(model, image_size=args.image_size))
            print(f"{model} {repeat + 1}/{args.repeats}: {runs[-1]}", flush=True)
        times = [name for name in runs[0] if name.endswith("_s")]
        report[model] = {
            "options": " ".join(options_of(model, image_size=args.image_size)),
            "medians": {name: statistics.median(run[name] for run in runs) for name in times},
            "runs": runs,
        }
        Path(args.output).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
