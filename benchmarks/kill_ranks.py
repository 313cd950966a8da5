"""`kill -9` of a random rank at a random moment, again and again; then the same command, and its weights.

    python benchmarks/kill_ranks.py [--times 20] [--replicas 2]

What is measured: seconds until all processes of the job are gone, the exit status, and whether the rerun ends
with the very bits of a run that nobody disturbed.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from machine import describe_machine

RESULTS = Path(__file__).parent / "results"
OPTIONS = [
    "--dataset=digits",
    "--limit-train-samples=96",
    "--micro-batch-size=8",
    "--global-batch-size=32",
    "--num-epochs=40",
    "--evaluate-every=60",
    "--checkpoint-every=3",
    "--num-threads=1",
    "--device=cpu",
]
LATEST_KILL_S = 6.0


def command(path: Path, replicas: int) -> list[str]:
    train = [sys.executable, "-m", "drivetrain", "train"]
    return [*train, *OPTIONS, f"--replicas={replicas}", f"--output-dir={path}"]


def weights(path: Path) -> bytes:
    """The newest checkpoint's weights, as they lie on the disk."""
    newest = max((path / "checkpoints").glob("[0-9]*"), key=lambda entry: int(entry.name))
    return (newest / "model.safetensors").read_bytes()


def ranks_of(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def kill_once(path: Path, *, replicas: int, chance: random.Random) -> dict[str, Any]:
    """Starts a run, kills one of its ranks some time after its start, and runs it again to its end."""
    process = subprocess.Popen(
        command(path, replicas), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while len(ranks_of(process)) < replicas and process.poll() is None:
        time.sleep(0.05)
    ranks = ranks_of(process)
    after_s = chance.uniform(0.0, LATEST_KILL_S)
    time.sleep(after_s)
    killed = chance.randrange(replicas)
    ranks[killed].kill()
    begun = time.perf_counter()
    errors = process.communicate()[1]
    gone_s = time.perf_counter() - begun
    left = [rank.pid for rank in ranks if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE]
    rerun = subprocess.run(command(path, replicas), capture_output=True, check=False)
    return {
        "killed_rank": killed,
        "after_s": round(after_s, 2),
        "gone_s": round(gone_s, 2),
        "exit_status": process.returncode,
        "processes_left": len(left),
        "last_line": (errors.strip().splitlines() or [""])[-1].replace(str(path), "RUN"),
        "rerun_status": rerun.returncode,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--output", default=str(RESULTS / "kill_ranks-cpu-2-cores.json"))
    args = parser.parse_args()
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Path(folder) / "undisturbed"
        subprocess.run(command(undisturbed, args.replicas), check=True, capture_output=True)
        kills = []
        for number in range(args.times):
            path = Path(folder) / f"run-{number}"
            found = kill_once(path, replicas=args.replicas, chance=chance)
            found["same_weights"] = weights(path) == weights(undisturbed)
            kills.append(found)
            print(f"{number + 1}/{args.times} {found}", flush=True)
    result = {
        "command": f"python benchmarks/kill_ranks.py --times {args.times} --replicas {args.replicas}",
        "machine": describe_machine(),
        "slowest_gone_s": max(kill["gone_s"] for kill in kills),
        "all_failed": all(kill["exit_status"] not in (0, None) for kill in kills),
        "none_left": all(kill["processes_left"] == 0 for kill in kills),
        "all_same_weights": all(kill["same_weights"] for kill in kills),
        "kills": kills,
    }
    Path(args.output).write_text(json.dumps(result, indent=1) + "\n")
    print({key: result[key] for key in result if key != "kills"})


if __name__ == "__main__":
    main()
