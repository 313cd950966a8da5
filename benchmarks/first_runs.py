"""How good the smallest trainings become: digits and MNIST.

    python benchmarks/first_runs.py --mnist-dir DIR [--output FILE.json]

What they reach is kept, not how long they take. On a CPU, with one thread, so that numbers repeat.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import drivetrain
from drivetrain.bench.machine import describe_machine

RESULTS = Path(__file__).parent / "results"


def train(recipe: str, **options: Any) -> dict[str, Any]:
    """The last events of a training and of its validation."""
    with tempfile.TemporaryDirectory() as folder:
        drivetrain.train(
            recipe, output_dir=f"{folder}/run", device="cpu", num_threads=1, compile="off", **options
        )
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    events = {event["event"]: event for event in map(json.loads, lines)}
    names = ("epoch", "update", "loss", "accuracy", "dice", "hard_dice")
    return {
        kind: {name: events[kind][name] for name in names if name in events[kind]}
        for kind in ("train", "validation")
        if kind in events
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mnist-dir", required=True)
    parser.add_argument("--output", default=str(RESULTS / "first_runs-cpu.json"))
    args = parser.parse_args()
    wanted: dict[str, dict[str, Any]] = {
        "digits": {"recipe": "digits"},
        "mnist_tutorial": {"recipe": "mnist_tutorial", "data_dir": args.mnist_dir},
    }
    report: dict[str, Any] = {
        "command": "python benchmarks/first_runs.py --mnist-dir DIR",
        "machine": describe_machine("cpu"),
    }
    for name, options in wanted.items():
        report[name] = train(**options)
        Path(args.output).write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
