"""`kill -9` of a random rank at a random moment after the first checkpoint; then the same command again.

    python benchmarks/kill_ranks.py [--times 20] [--replicas 2]

What is measured: seconds until all processes of the job are gone, the exit status, the update reached at the
kill and the one that the rerun continues from, and whether the rerun ends with the very bits of a run that
nobody disturbed.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from drivetrain.bench.machine import describe_machine

RESULTS = Path(__file__).parent / "results"
OPTIONS = [
    "--dataset=digits",
    "--limit-train-samples=96",
    "--limit-validation-samples=50",
    "--micro-batch-size=8",
    "--global-batch-size=32",
    "--num-epochs=30",
    "--evaluate-every=45",
    "--checkpoint-every=7",
    "--log-every=1",
    "--num-threads=1",
    "--device=cpu",
]
# 96 samples in batches of 32, 30 times.
TOTAL_UPDATES = 90
LOOK_S = 0.01
# A kill so late might come after the last update.
LATEST_SHARE = 0.9


def command(path: Path, replicas: int) -> list[str]:
    train = [sys.executable, "-m", "drivetrain", "train"]
    return [*train, *OPTIONS, f"--replicas={replicas}", f"--output-dir={path}"]


def checkpoints(path: Path) -> list[int]:
    """The updates after which whole checkpoints lie there."""
    return sorted(int(entry.name) for entry in (path / "checkpoints").glob("[0-9]*"))


def weights(path: Path) -> bytes:
    """The newest checkpoint's weights, as they lie on the disk."""
    return (path / "checkpoints" / str(checkpoints(path)[-1]) / "model.safetensors").read_bytes()


def reached_update(path: Path) -> int:
    """The last update that was logged; every one is."""
    lines = (path / "metrics.jsonl").read_text().splitlines()
    found = [re.search(r'"update": (\d+)', line) for line in lines]
    return max((int(match[1]) for match in found if match), default=0)


def ranks_of(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def start(path: Path, replicas: int) -> "subprocess.Popen[str]":
    """A run that has written its first checkpoint."""
    process = subprocess.Popen(
        command(path, replicas), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while not checkpoints(path) and process.poll() is None:
        time.sleep(LOOK_S)
    return process


def measure_undisturbed(path: Path, *, replicas: int) -> float:
    """Trains to the end; returns the seconds from the first checkpoint to the last."""
    process = start(path, replicas)
    begun = time.perf_counter()
    while checkpoints(path)[-1] < TOTAL_UPDATES and process.poll() is None:
        time.sleep(LOOK_S)
    remaining_s = time.perf_counter() - begun
    process.communicate()
    assert process.returncode == 0, "the undisturbed run failed"
    return remaining_s


def kill_once(path: Path, *, replicas: int, killed: int, delay_s: float) -> dict[str, Any] | None:
    """Starts a run, kills a rank some time after its first checkpoint, and runs it again to its end.

    None where the run was over before the kill.
    """
    process = start(path, replicas)
    ranks = ranks_of(process)
    time.sleep(delay_s)
    if len(ranks) < replicas or checkpoints(path)[-1] >= TOTAL_UPDATES or not ranks[killed].is_running():
        process.communicate()
        return None
    ranks[killed].kill()
    begun = time.perf_counter()
    errors = process.communicate()[1]
    gone_s = time.perf_counter() - begun
    left = [rank.pid for rank in ranks if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE]
    at_kill = {"update_at_kill": reached_update(path), "newest_checkpoint": checkpoints(path)[-1]}
    rerun = subprocess.run(command(path, replicas), capture_output=True, text=True, check=False)
    continued = re.search(r"continuing after update (\d+)", rerun.stdout)
    return {
        "killed_rank": killed,
        "after_first_checkpoint_s": round(delay_s, 2),
        **at_kill,
        "continued_from": int(continued[1]) if continued else None,
        "gone_s": round(gone_s, 2),
        "exit_status": process.returncode,
        "processes_left": len(left),
        "last_line": (errors.strip().splitlines() or [""])[-1].replace(str(path), "RUN"),
        "rerun_status": rerun.returncode,
    }


def kill_many(folder: Path, *, times: int, replicas: int, chance: random.Random) -> list[dict[str, Any]]:
    """The wanted number of kills, each in a run of its own."""
    undisturbed = folder / "undisturbed"
    remaining_s = measure_undisturbed(undisturbed, replicas=replicas)
    print(f"{remaining_s:.2f} s from the first checkpoint to the last", flush=True)
    kills: list[dict[str, Any]] = []
    attempt = 0
    while len(kills) < times:
        path = folder / f"run-{attempt}"
        attempt += 1
        delay_s = chance.uniform(0.0, LATEST_SHARE * remaining_s)
        begun = time.perf_counter()
        found = kill_once(path, replicas=replicas, killed=chance.randrange(replicas), delay_s=delay_s)
        if found is None:
            continue
        found["same_weights"] = weights(path) == weights(undisturbed)
        kills.append(found)
        print(f"{len(kills)}/{times} in {time.perf_counter() - begun:.0f} s: {found}", flush=True)
    return kills


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of ranks and moments")
    parser.add_argument("--output", default=str(RESULTS / "kill_ranks-cpu-2-cores.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kills = kill_many(
            Path(folder), times=args.times, replicas=args.replicas, chance=random.Random(args.seed)
        )
    result = {
        "command": f"python benchmarks/kill_ranks.py --times {args.times} --replicas {args.replicas}",
        "machine": describe_machine(),
        "updates": TOTAL_UPDATES,
        "slowest_gone_s": max(kill["gone_s"] for kill in kills),
        "all_failed": all(kill["exit_status"] not in (0, None) for kill in kills),
        "none_left": all(kill["processes_left"] == 0 for kill in kills),
        "all_continued": all(kill["continued_from"] == kill["newest_checkpoint"] for kill in kills),
        "all_same_weights": all(kill["same_weights"] for kill in kills),
        "kills": kills,
    }
    Path(args.output).write_text(json.dumps(result, indent=1) + "\n")
    print({key: result[key] for key in result if key != "kills"})


if __name__ == "__main__":
    main()
