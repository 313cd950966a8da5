"""Types the change that the planner proposes, and trains with it under a limit of torch's allocator.

    python benchmarks/planner_changes.py [--device cuda] [--output FILE]

Each recipe is planned with `--memory-limit`, a share of what it needs. Then it is trained twice under that
limit: as it is, and with the options of the plan's advice, as printed. The limit is that of a whole process
(`torch.cuda.set_per_process_memory_fraction`), so it counts memory that the allocator keeps without using it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drivetrain.bench.machine import describe_machine

SCRIPT = "benchmarks/planner_changes.py"
RESULTS = Path(__file__).parent / "results"
_LONGEST_S = 300
_UPDATES = 6
# Most of the memory of resnet152 are weights and states, of the others activations.
RECIPES: dict[str, tuple[Mapping[str, object], float]] = {
    "unet": ({"model": "unet", "image-size": 388, "channels": 1, "micro-batch-size": 8}, 0.6),
    "unet_same": (
        {"model": "unet_same", "model-width": 48, "image-size": 512, "channels": 1, "micro-batch-size": 8},
        0.35,
    ),
    "resnet50": ({"model": "resnet50", "image-size": 224, "micro-batch-size": 128}, 0.7),
    "resnet152": (
        {
            "model": "resnet152",
            "image-size": 64,
            "micro-batch-size": 2,
            "optimizer": "adam",
            "learning-rate": 0.0001,
        },
        0.8,
    ),
    "timm/convnext_atto": ({"model": "timm/convnext_atto", "image-size": 224, "micro-batch-size": 256}, 0.3),
}
# Torch is told before the program starts, as a device with less memory would.
_LIMITED = """
import sys, torch
limit, sys.argv = int(sys.argv[1]), ["drivetrain", *sys.argv[2:]]
torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
from drivetrain.cli.main import run_process
sys.exit(run_process())
"""


def words_of(options: Mapping[str, object], *, device: str) -> list[str]:
    """A recipe on generated images as options."""
    data = "synthetic-em" if str(options["model"]).startswith("unet") else "synthetic"
    whole = {"dataset": data, "device": device, "num-epochs": 1000, "max-updates": _UPDATES, "auto": "off"}
    return [word for name, value in {**whole, **options}.items() for word in (f"--{name}", str(value))]


def plan(words: Sequence[str]) -> dict[str, Any]:
    """What `drivetrain plan --json` says."""
    command = [sys.executable, "-m", "drivetrain", "plan", "--json", "--measure", "off", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LONGEST_S)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def train(words: Sequence[str], *, limit_bytes: int) -> dict[str, Any]:
    """Whether a training under the limit ends, without running out of memory on the way."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        command = [sys.executable, "-c", _LIMITED, str(limit_bytes), "train", *words]
        command += ["--output-dir", str(run), "--validation", "False", "--checkpoints", "False"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_LONGEST_S)
        metrics = run / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
    events = [json.loads(line) for line in lines]
    shortages = [event for event in events if event["event"] == "out_of_memory"]
    says = [line for line in done.stderr.splitlines() if "memory" in line]
    return {
        "exit_status": done.returncode,
        "fits": done.returncode == 0 and not shortages,
        "smaller_batches": len(shortages),
        "peak_bytes": events[-1].get("peak_memory_bytes") if events else None,
        "says": says[-1] if says else None,
    }


def try_advice(options: Mapping[str, object], share: float, *, device: str) -> dict[str, Any]:
    """One recipe: what is proposed at a share of its memory, and whether it then fits."""
    words = words_of(options, device=device)
    needed = max(each["peak_bytes"] for each in plan(words)["devices"])
    limit_bytes = round(share * needed)
    advice = plan([*words, "--memory-limit", str(limit_bytes)])["advice"]
    return {
        "limit_bytes": limit_bytes,
        "predicted_peak_bytes": needed,
        "proposed": advice["options"],
        "predicted_with_proposed": advice["peak_bytes"],
        "as_asked": train(words, limit_bytes=limit_bytes),
        "with_proposed": train([*words, *advice["options"].split(" ")], limit_bytes=limit_bytes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, help="only these (default: all)")
    parser.add_argument(
        "--output", type=Path, help="(default: benchmarks/results/planner_changes-DEVICE.json)"
    )
    args = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for name in args.recipes or RECIPES:
        options, share = RECIPES[name]
        rows[name] = try_advice(options, share, device=args.device)
        print(name, json.dumps(rows[name]), flush=True)
    report = {
        "command": f"python {SCRIPT} --device {args.device}",
        "machine": describe_machine(args.device),
        "recipes": rows,
    }
    output = args.output or RESULTS / f"planner_changes-{args.device}.json"
    output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
