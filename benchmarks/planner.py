"""What the planner predicts beside what then happens: seconds of an update, and memory on an accelerator.

    python benchmarks/planner.py [--device cpu] [--cases NAME...] [--only memory] [--output FILE]
    python benchmarks/planner.py --device cuda --described h200 --measured FILE [--output FILE]

Each case is predicted in a process of its own, as `drivetrain plan` does, and then trained as `drivetrain
train` does on generated images; the measured seconds are those between the first log and the last. Peaks are
those of torch's allocator after the first update, in which cuDNN tries algorithms with all memory that is
free. On an otherwise idle machine. With --described nothing is trained: the figures of a device file stand
beside what an earlier call measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.bench.machine import describe_machine

SCRIPT = "benchmarks/planner.py"
RESULTS = Path(__file__).parent / "results"
_LONGEST_S = 600
_LOGS = 4
_MASKS = ("unet", "unet_same")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One recipe on generated images."""

    model: str
    options: Mapping[str, Any]
    updates: int = 8

    def arguments(self, device: str) -> list[str]:
        """The options that prediction and training share."""
        fixed = {
            "dataset": "synthetic-em" if self.model in _MASKS else "synthetic",
            "model": self.model,
            "device": device,
            "num-epochs": 1000,
            "max-updates": self.updates * _LOGS,
            "log-every": self.updates,
            "auto": "off",
        }
        pairs = {**fixed, **self.options}
        return [word for option, value in pairs.items() for word in (f"--{option}", *str(value).split(" "))]


def cases_for(device: str) -> dict[str, Case]:
    """Models x layouts x precision x compiled or not, of a size that the device is made for."""
    is_cpu = device == "cpu"
    half = "16.32"
    image = {
        "unet": {"image-size": 68 if is_cpu else 388, "channels": 1, "micro-batch-size": 2 if is_cpu else 8},
        "unet_same": {"image-size": 64 if is_cpu else 512, "model-width": 16 if is_cpu else 48},
        "resnet50": {"image-size": 64 if is_cpu else 224, "micro-batch-size": 8 if is_cpu else 64},
        "timm/convnext_atto": {"image-size": 64 if is_cpu else 224, "micro-batch-size": 8 if is_cpu else 128},
        "mnist_cnn": {
            "image-size": 28,
            "channels": 1,
            "dataset-size": 8192,
            "micro-batch-size": 128 if is_cpu else 1024,
        },
    }
    image["unet_same"] |= {"channels": 1, "micro-batch-size": 4 if is_cpu else 8}
    layouts: dict[str, dict[str, Any]] = {
        "one process": {},
        "recomputation": {"recomputation": "True"},
        "accumulation 4": {"gradient-accumulation-count": 4},
        "16 bits": {"precision": half},
        "32 bits": {"precision": "32.32"},
        "compiled": {"compile": "on"},
        "Adam": {"optimizer": "adam", "learning-rate": 0.0001},
    }
    beside = {
        "2 replicas": {"replicas": 2},
        "2 stages": {"stages": 2, "gradient-accumulation-count": 4},
    }
    # An accelerator computes in 16 bits unless it is told otherwise, a CPU in 32.
    other = "16 bits" if is_cpu else "32 bits"
    chosen = {
        "unet": ("one process", "recomputation", other, "2 stages"),
        "unet_same": ("one process", "accumulation 4", "Adam", "compiled"),
        "resnet50": ("one process", "recomputation", "2 replicas", "2 stages", other),
        "timm/convnext_atto": ("one process", other),
        "mnist_cnn": ("one process", "accumulation 4", "2 replicas", "compiled"),
    }
    every = layouts | (beside if is_cpu else {})
    found = {
        f"{model}, {name}": Case(model=model, options={**image[model], **every[name]})
        for model, names in chosen.items()
        for name in names
        if name in every
    }
    if not is_cpu:
        for model in ("unet", "resnet50"):
            found[f"{model}, compiled"] = Case(model=model, options={**image[model], "compile": "on"})
    return found


def predict(case: Case, *, device: str, times: bool) -> dict[str, Any]:
    """What `drivetrain plan --json` says, with times that it measures or without any."""
    command = [sys.executable, "-m", "drivetrain", "plan", "--json", "--measure", "on" if times else "off"]
    began_s = time.perf_counter()
    # Nothing that an earlier case measured may help.
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [*command, *case.arguments(device)],
            check=True,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            env={**os.environ, "XDG_CACHE_HOME": cache},
        )
    plan = json.loads(done.stdout)
    return {
        "seconds_per_update": plan.get("seconds_per_update"),
        "peak_bytes": max(each["peak_bytes"] for each in plan["devices"]),
        "planning_s": round(time.perf_counter() - began_s, 1),
    }


def measure(case: Case, *, device: str) -> dict[str, Any]:
    """What a training of the same options does."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        command = [sys.executable, "-m", "drivetrain", "train", *case.arguments(device)]
        command += ["--output-dir", str(run), "--validation", "False", "--checkpoints", "False"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LONGEST_S)
        events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        batch = json.loads((run / "plan.json").read_text())["batch"]["global"]
    logs = [event for event in events if event["event"] == "train"]
    # The first execution holds the start of libraries and the capture of the update.
    seconds = [batch / event["images_per_second"] for event in logs[1:]]
    return {
        "seconds_per_update": statistics.median(seconds),
        "peak_bytes": events[-1]["peak_memory_bytes"],
    }


def compare(case: Case, *, device: str, only: str | None = None) -> dict[str, Any]:
    """Prediction and measurement, and by how much the prediction is off."""
    predicted = predict(case, device=device, times=only != "memory")
    measured = measure(case, device=device)
    kept = [
        name
        for name, is_kept in (("seconds_per_update", only is None), ("peak_bytes", device != "cpu"))
        if is_kept
    ]
    off = {key: predicted[key] / measured[key] - 1 for key in kept}
    return {"options": dict(case.options), "predicted": predicted, "measured": measured, "off_by": off}


def describe(case: Case, measured: Mapping[str, Any], *, device: str) -> dict[str, Any]:
    """What a plan for a described device says beside what was measured on such a device."""
    command = [sys.executable, "-m", "drivetrain", "plan", "--json", "--device-file", device]
    # The file names the kind of the device.
    done = subprocess.run(
        [*command, *case.arguments("cpu")], check=True, capture_output=True, text=True, timeout=_LONGEST_S
    )
    plan = json.loads(done.stdout)
    predicted = {
        "seconds_per_update": plan["seconds_per_update"],
        "peak_bytes": max(each["peak_bytes"] for each in plan["devices"]),
    }
    off = {key: value / measured[key] - 1 for key, value in predicted.items() if key in measured}
    return {"options": dict(case.options), "predicted": predicted, "measured": measured, "off_by": off}


def summary(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The median and the worst deviation of each quantity."""
    found: dict[str, list[float]] = {}
    for row in rows.values():
        for key, off in row.get("off_by", {}).items():
            found.setdefault(key, []).append(abs(off))
    return {key: {"median": statistics.median(offs), "worst": max(offs)} for key, offs in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--only", choices=["memory"], help="no times: other work may run beside")
    parser.add_argument("--described", metavar="FILE", help="a device file; needs --measured")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="results of this script")
    parser.add_argument("--output", type=Path, help="(default: benchmarks/results/planner-DEVICE.json)")
    args = parser.parse_args()
    if (args.described is None) != (args.measured is None):
        parser.error("--described and --measured need each other")
    known = cases_for(args.device)
    output = args.output or RESULTS / f"planner-{args.device}.json"
    earlier = {} if args.measured is None else json.loads(args.measured.read_text())
    also = "" if args.described is None else f" --described {args.described} --measured {args.measured.name}"
    report: dict[str, Any] = {
        "command": f"python {SCRIPT} --device {args.device}{also}",
        "machine": earlier.get("machine") or describe_machine(args.device),
    }
    rows: dict[str, dict[str, Any]] = {}
    for name in args.cases or earlier.get("cases", known):
        try:
            if args.described is None:
                rows[name] = compare(known[name], device=args.device, only=args.only)
            else:
                measured = earlier["cases"][name]["measured"]
                rows[name] = describe(known[name], measured, device=args.described)
        except subprocess.CalledProcessError as error:
            rows[name] = {"failed": (error.stderr or error.stdout).strip().splitlines()[-1]}
        print(name, rows[name].get("off_by", rows[name].get("failed")), flush=True)
        output.write_text(json.dumps({**report, "off_by": summary(rows), "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
