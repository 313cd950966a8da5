"""The peak memory of CPU ranks that train a model in stages and write checkpoints, beside what `plan` says.

    python benchmarks/checkpoint_memory.py [--case NAME ...] --output FILE.json

Each case is a training of a few updates with a checkpoint after each, by `drivetrain train`. A rank's peak is
its resident memory at most (VmHWM), looked at all the time. `above_torch` is the peak without that of a
process that has just imported torch; `planned` is what the plan says of the rank, and of its libraries
beyond torch. glibc's heap has gaps, unless `--optimise-for memory` is asked for. Linux only.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from drivetrain.bench.machine import describe_machine

ALWAYS = [
    "--device=cpu",
    "--num-threads=1",
    "--compile=off",
    "--checkpoint-every=1",
    "--optimizer=adam",
    "--verbosity=quiet",
]
OF_CLASSIFIERS = [
    "--dataset=synthetic",
    "--dataset-size=1280",
    "--stages=2",
    "--micro-batch-size=64",
    "--gradient-accumulation-count=4",
    "--max-updates=3",
]
# Without gaps between freed tensors, and else as it is by default.
WITHOUT_GAPS = [
    "--optimise-for=memory",
    "--recomputation=False",
    "--optimizer-state-offloading=False",
]
CASES = {
    "cifar_resnet56": ["--model=cifar_resnet56", *OF_CLASSIFIERS, *WITHOUT_GAPS],
    "resnet18": ["--model=resnet18", *OF_CLASSIFIERS, *WITHOUT_GAPS],
    "cifar_resnet56, with gaps": ["--model=cifar_resnet56", *OF_CLASSIFIERS],
    "resnet18, with gaps": ["--model=resnet18", *OF_CLASSIFIERS],
    "isbi_unet_pipelined": [
        "--config=isbi_unet_pipelined",
        "--dataset=synthetic-em",
        "--dataset-size=8",
        "--image-size=388",
        "--global-batch-size=8",
        "--validation=False",
        "--max-updates=2",
        "--optimise-for=memory",
        "--optimizer-state-offloading=False",
    ],
}
READ_PEAK = "import re; print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
LOOK_S = 0.02


def peak_after(imports: str) -> int:
    """The peak of a process that has imported something and done nothing else."""
    found = subprocess.run(
        [sys.executable, "-c", f"{imports}; {READ_PEAK}"], capture_output=True, text=True, check=True
    )
    return int(found.stdout) * 1024


def peak_of(pid: int) -> int:
    """The peak of a process until now; 0 where it is gone."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return 0 if found is None else int(found[1]) * 1024


def rank_peaks(options: list[str], folder: Path) -> list[int]:
    """The peak of every rank of a training, in the order in which they started."""
    command = [sys.executable, "-m", "drivetrain", "train", *ALWAYS, *options, f"--output-dir={folder}"]
    launcher = subprocess.Popen(command)
    process, peaks = psutil.Process(launcher.pid), dict[int, int]()
    while launcher.poll() is None:
        for child in process.children():
            if child.pid in peaks or is_rank(child):
                peaks[child.pid] = max(peaks.get(child.pid, 0), peak_of(child.pid))
        time.sleep(LOOK_S)
    if launcher.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {launcher.returncode}")
    return [peaks[pid] for pid in sorted(peaks)]


def is_rank(process: psutil.Process) -> bool:
    """Whether a child of the launcher is a rank; others keep track of resources, or try something out."""
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def measure(name: str, *, torch_bytes: int) -> dict[str, Any]:
    """One case: a row for each rank."""
    with tempfile.TemporaryDirectory() as folder:
        peaks = rank_peaks(CASES[name], Path(folder) / "run")
        memory = json.loads((Path(folder) / "run" / "plan.json").read_text())["memory"]
    ranks = []
    for rank, (peak, device) in enumerate(zip(peaks, memory["devices"], strict=True)):
        planned = device["peak"] + memory["libraries_bytes"] - torch_bytes
        above = peak - torch_bytes
        ranks.append(
            {
                "rank": rank,
                "peak": peak,
                "above_torch": above,
                "planned_of_device": device["peak"],
                "planned": planned,
                "ratio": round(above / planned, 3),
            }
        )
    return {"options": [*ALWAYS, *CASES[name]], "ranks": ranks}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    torch_bytes = peak_after("import torch")
    report = {
        "command": "python benchmarks/checkpoint_memory.py",
        "machine": describe_machine("cpu"),
        "unit": "bytes",
        "imported_torch": torch_bytes,
        "cases": {name: measure(name, torch_bytes=torch_bytes) for name in args.case},
    }
    Path(args.output).write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["cases"], indent=1))


if __name__ == "__main__":
    main()
