"""16-bit weights with and without stochastic rounding, against float32, on MNIST: several seeds each.

    python benchmarks/stochastic_rounding.py --data-dir DIR [--half-types bfloat16 float16] [--seeds 5]

The tutorial's network and rate on a part of MNIST, `--precision 32.32` against `16.16`, where weights, their
gradients and all products have 16 bits. Written are the validation accuracy and loss of every seed, and for
each setting their means with 95 % intervals (Student's t); nothing is left out, whatever comes out.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import drivetrain
from drivetrain.bench.machine import describe_machine

RECIPE = "mnist_tutorial"
OUTPUT = Path(__file__).parent / "results" / "stochastic_rounding-cpu-2-cores.json"


def settings_of(half_types: list[str]) -> dict[str, dict[str, Any]]:
    """What is compared, by a name for the table."""
    found: dict[str, dict[str, Any]] = {"32.32": {"precision": "32.32"}}
    for half_type in half_types:
        for rounds in (False, True):
            name = f"16.16 {half_type}, {'stochastic' if rounds else 'nearest'} rounding"
            found[name] = {"precision": "16.16", "half_type": half_type, "stochastic_rounding": rounds}
    return found


def train_once(seed: int, setting: dict[str, Any], *, shared: dict[str, Any]) -> dict[str, float]:
    """One training in a directory that does not stay."""
    with tempfile.TemporaryDirectory() as folder:
        started_s = time.perf_counter()
        result = drivetrain.train(
            RECIPE, seed=seed, checkpoints=False, output_dir=f"{folder}/run", quiet=True, **shared, **setting
        )
        seconds = time.perf_counter() - started_s
    validation = result.metrics["validation"]
    return {
        "seed": seed,
        "accuracy": validation["accuracy"],
        "loss": validation["loss"],
        "seconds": round(seconds, 2),
    }


def summary_of(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Means over the seeds, each with the half-width of its 95 % interval."""
    found: dict[str, Any] = {}
    for name in ("accuracy", "loss"):
        values = [run[name] for run in runs]
        found[name] = {"mean": statistics.fmean(values), "interval_95": half_width(values)}
    return found


def half_width(values: list[float]) -> float | None:
    """How far the mean may be off, with 95 % confidence; one value alone does not say."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--half-types", nargs="+", choices=("bfloat16", "float16"), default=["bfloat16"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=6000, help="training images (default: 6000)")
    parser.add_argument("--validation-samples", type=int, default=2000, help="(default: the first 2000)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", default=str(OUTPUT))
    args = parser.parse_args()
    shared = {
        "data_dir": args.data_dir,
        "limit_train_samples": args.samples,
        "limit_validation_samples": args.validation_samples,
        "num_epochs": args.epochs,
        "device": args.device,
    }
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in settings_of(args.half_types)}
    for seed in range(args.seeds):
        for name, setting in settings_of(args.half_types).items():
            runs[name].append(train_once(seed, setting, shared=shared))
            last = runs[name][-1]
            print(
                f"seed {seed}, {name}: accuracy {last['accuracy']:.4f}, loss {last['loss']:.4f}", flush=True
            )
    numbers = f"--seeds {args.seeds} --samples {args.samples} --validation-samples {args.validation_samples}"
    rest = f"--epochs {args.epochs} --device {args.device}"
    options = f"--half-types {' '.join(args.half_types)} {numbers} {rest}"
    report = {
        "command": f"python benchmarks/stochastic_rounding.py --data-dir DIR {options}",
        "machine": describe_machine(args.device),
        "recipe": RECIPE,
        "options": {name: value for name, value in shared.items() if name != "data_dir"},
        "settings": {name: {**summary_of(found), "runs": found} for name, found in runs.items()},
    }
    Path(args.output).write_text(json.dumps(report, indent=1) + "\n")
    for name, found in runs.items():
        shown = summary_of(found)
        print(f"{name}: {_shown(shown['accuracy'])} accuracy, {_shown(shown['loss'])} loss")


def _shown(value: dict[str, float | None]) -> str:
    interval = value["interval_95"]
    return f"{value['mean']:.4f}" + ("" if interval is None else f" +- {interval:.4f}")


if __name__ == "__main__":
    main()
