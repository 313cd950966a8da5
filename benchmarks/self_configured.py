"""A folder and a budget of time, nothing else: what `drivetrain train DIR` reaches, beside peers' recipes.

    python benchmarks/self_configured.py photos --data-dir DIR [--budget 10m] [--device cpu] [--seeds 0 1 2]

Each training runs in a process of its own, from the start of the process to its end, on an otherwise idle
machine; where several share it, `--beside` says so in the results. The peers (self_configured_peers.py) get
the same number of seconds for loading, training and one validation; they time their first updates and choose
as many epochs as fit. Scores are those of the last weights on the validation images.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.bench.machine import describe_machine
from drivetrain.recipe.ending import parse_duration_s

SCRIPT = "benchmarks/self_configured.py"
RESULTS = Path(__file__).parent / "results"
PEERS = Path(__file__).parent / "self_configured_peers.py"
_SECONDS_TO_END = 600


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of data: the budget that its goal was set for, the score, the peers beside it.

    `goal` is for the device that the case was set for; on an accelerator `accelerator_goal` takes its place.
    """

    budget: str
    metric: str
    goal: float
    options: tuple[str, ...] = ()
    command: str = "train"
    peers: tuple[str, ...] = ()
    accelerator_goal: float | None = None


CASES = {
    "photos": Case(
        budget="10m", metric="accuracy", goal=0.58, peers=("timm", "one-cycle"), accelerator_goal=0.77
    ),
    "street": Case(
        budget="3m",
        metric="iou",
        goal=0.50,
        options=("--ignore-class", "unlabelled"),
        peers=("smp",),
    ),
    "mnist": Case(budget="1m", metric="accuracy", goal=0.992),
    "cifar10": Case(budget="2m", metric="accuracy", goal=0.95),
    "isbi2012": Case(budget="160s", metric="dice", goal=0.9017, options=("--folds", "5"), command="crossval"),
}


def train_ours(case: Case, *, args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """`drivetrain train DIR --budget TIME`, and what its run directory says."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        command = [sys.executable, "-m", "drivetrain", case.command, str(args.data_dir)]
        command += ["--budget", args.budget, "--seed", str(seed), "--device", args.device]
        command += ["--output-dir", str(run), *case.options]
        seconds = _seconds_of(command, budget=args.budget)
        found = _crossval_of(run) if case.command == "crossval" else _run_of(run)
    return {"score": found.pop(case.metric), "seconds": round(seconds, 1), **found}


def _run_of(run: Path) -> dict[str, Any]:
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [event for event in events if event["event"] == "validation"][-1]
    plan = json.loads((run / "plan.json").read_text())
    rows = (run / "recipe.yaml").read_text().splitlines()
    chosen = set(plan["chosen_by_rules"])
    recipe = [row for row in rows if row.split(":")[0] in chosen]
    return {**_scores(last), "updates": last["update"], "recipe": recipe}


def _crossval_of(folder: Path) -> dict[str, Any]:
    summary = json.loads((folder / "crossval.json").read_text())
    last = summary["statistics"]["last"]
    return _scores({name: entry["mean"] for name, entry in last.items() if name != "what"})


def _scores(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("accuracy", "iou", "dice") if name in entry}


def train_peer(name: str, *, args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """A peer's recipe in a process of its own, which prints its result as the last line."""
    seconds = parse_duration_s(args.budget)
    command = [sys.executable, str(PEERS), name, "--data-dir", str(args.data_dir), "--device", args.device]
    command += ["--seconds", str(seconds), "--seed", str(seed)]
    began_s = time.perf_counter()
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=seconds + _SECONDS_TO_END
    )
    return {**json.loads(done.stdout.splitlines()[-1]), "seconds": round(time.perf_counter() - began_s, 1)}


def _seconds_of(command: list[str], *, budget: str) -> float:
    began_s = time.perf_counter()
    subprocess.run(command, check=True, timeout=parse_duration_s(budget) + _SECONDS_TO_END)
    return time.perf_counter() - began_s


def compare(name: str, *, args: argparse.Namespace) -> dict[str, Any]:
    """Ours with every seed, each peer with one."""
    case = CASES[name]
    trainings: list[tuple[str, Callable[[int], dict[str, Any]], list[int]]] = []
    if "ours" in args.only:
        trainings.append(("drivetrain", lambda seed: train_ours(case, args=args, seed=seed), args.seeds))
    for peer in case.peers:
        if peer in args.only:
            trainings.append((peer, lambda seed, peer=peer: train_peer(peer, args=args, seed=seed), [0]))  # type: ignore[misc]
    found: dict[str, Any] = {}
    for contender, train, seeds in trainings:
        runs = []
        for seed in seeds:
            runs.append({"seed": seed, **train(seed)})
            print(f"{contender}, seed {seed}: {runs[-1]['score']:.4f} in {runs[-1]['seconds']} s", flush=True)
        found[contender] = {"mean_score": statistics.fmean(run["score"] for run in runs), "runs": runs}
    goal = case.goal if args.device == "cpu" else case.accelerator_goal or case.goal
    return {"metric": case.metric, "goal": goal, "contenders": found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--budget", help="(default: that of the case's goal)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of ours; a peer has seed 0")
    parser.add_argument("--beside", type=int, default=0, help="others that share the machine, for the record")
    parser.add_argument("--only", nargs="+", default=["ours", "timm", "one-cycle", "smp"])
    parser.add_argument("--output", type=Path, help="(default: benchmarks/results/self_configured_CASE-...)")
    args = parser.parse_args()
    args.budget = args.budget or CASES[args.case].budget
    report = {
        "command": f"python {SCRIPT} {args.case} --data-dir DIR --budget {args.budget} --device {args.device}"
        f" --seeds {' '.join(map(str, args.seeds))}",
        "other_trainings_on_the_machine": args.beside,
        "machine": describe_machine(args.device),
        "budget": args.budget,
        **compare(args.case, args=args),
    }
    output = args.output or RESULTS / f"self_configured_{args.case}-{args.device}.json"
    output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
