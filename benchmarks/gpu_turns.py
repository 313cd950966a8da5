"""Contenders that take turns in one process on one accelerator, and where the time of a step goes."""

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from drivetrain.bench.machine import describe_machine

FEWEST_STEPS, MOST_STEPS = 3, 20_000
TOP_KERNELS = 25
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST_WORK = ("cpu_op",)


@dataclass(kw_only=True)
class Contender:
    """Something that makes steps: `run` makes so many, and `time_s` says how long each of them took.

    `warm_up` is how many steps it takes until all kernels are chosen and everything is captured. `kept` is
    what a CUDA graph reads and writes without holding it.
    """

    run: Callable[[int], None]
    device: torch.device
    warm_up: int = 4
    notes: dict[str, Any] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None
    kept: Any = None

    def time_s(self, steps: int) -> float:
        """The mean seconds of some steps, the device waited for at both ends alone."""
        synchronise(self.device)
        started_s = time.perf_counter()
        self.run(steps)
        synchronise(self.device)
        return (time.perf_counter() - started_s) / steps


Build = Callable[[], Contender]


def synchronise(device: torch.device) -> None:
    """Waits for an accelerator."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def compare(builds: Mapping[str, Build], *, images: int, seconds: float, repeats: int) -> dict[str, Any]:
    """Builds the contenders one after the other, then lets them take turns; medians of the repeats."""
    found: dict[str, dict[str, Any]] = {}
    ready: dict[str, Contender] = {}
    for name, build in builds.items():
        started_s = time.perf_counter()
        try:
            contender = build()
            contender.run(contender.warm_up)
            synchronise(contender.device)
        except Exception as error:
            # One that cannot be had here must not take the others with it.
            found[name] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
            print(f"  {name}: {found[name]['error']}", flush=True)
            continue
        ready[name] = contender
        found[name] = {"set_up_seconds": round(time.perf_counter() - started_s, 2), "repeats": []}
        print(f"  {name}: ready after {found[name]['set_up_seconds']} s", flush=True)
    _take_turns(ready, found, seconds=seconds, repeats=repeats)
    for name, contender in ready.items():
        _summarise(found[name], images=images)
        found[name] |= contender.notes
        print(f"  {name}: {_line(found[name])}", flush=True)
    return found


def _take_turns(
    ready: Mapping[str, Contender], found: Mapping[str, dict[str, Any]], *, seconds: float, repeats: int
) -> None:
    share_s = seconds / max(1, repeats * len(ready))
    steps = {
        name: max(FEWEST_STEPS, min(MOST_STEPS, int(share_s / contender.time_s(FEWEST_STEPS))))
        for name, contender in ready.items()
    }
    for _ in range(repeats):
        for name, contender in ready.items():
            found[name]["repeats"].append(contender.time_s(steps[name]))
    for name in ready:
        found[name]["steps_per_repeat"] = steps[name]


def _summarise(entry: dict[str, Any], *, images: int) -> None:
    median_s = statistics.median(entry["repeats"])
    entry["seconds_per_step"] = median_s
    entry["images_per_second"] = images / median_s


def _line(entry: Mapping[str, Any]) -> str:
    return f"{entry['seconds_per_step'] * 1e3:.4g} ms a step, {entry['images_per_second']:.5g} images/s"


def shares(found: Mapping[str, Mapping[str, Any]], *, own: str) -> dict[str, float]:
    """Our speed as a share of that of each other contender."""
    speeds = {name: entry["images_per_second"] for name, entry in found.items() if "repeats" in entry}
    if own not in speeds:
        return {}
    return {f"of_{name}": round(speeds[own] / speed, 4) for name, speed in speeds.items() if name != own}


def profile_steps(contender: Contender, *, steps: int = 5) -> dict[str, Any]:
    """Which kernels take the time of a step, and how much of it the device has nothing to do."""
    kind = contender.device.type
    activities = [torch.profiler.ProfilerActivity.CPU]
    if kind == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    synchronise(contender.device)
    with torch.profiler.profile(activities=activities) as profiler:
        started_s = time.perf_counter()
        contender.run(steps)
        synchronise(contender.device)
        wall_s = time.perf_counter() - started_s
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    wanted = _HOST_WORK if kind == "cpu" else _DEVICE_WORK
    work = [event for event in events if event.get("cat") in wanted and "dur" in event]
    return {"steps": steps, "wall_seconds_per_step": wall_s / steps, **_account(work, steps=steps)}


def _account(work: Sequence[Mapping[str, Any]], *, steps: int) -> dict[str, Any]:
    """Times of kernels by name, and of the gaps between them; a trace counts in microseconds."""
    spans = sorted((event["ts"], event["ts"] + event["dur"]) for event in work)
    busy, end = 0.0, spans[0][0] if spans else 0.0
    for first, last in spans:
        busy += max(0.0, last - max(first, end))
        end = max(end, last)
    span = end - spans[0][0] if spans else 0.0
    totals: dict[str, list[float]] = {}
    for event in work:
        totals.setdefault(event["name"], []).append(event["dur"])
    ranked = sorted(totals.items(), key=lambda item: -sum(item[1]))
    return {
        "busy_seconds_per_step": busy / steps / 1e6,
        "gap_share": 1 - busy / span if span else 0.0,
        "kernels_per_step": len(work) / steps,
        "kernels": [
            {
                "name": name[:160],
                "share": sum(durations) / busy,
                "microseconds_per_step": sum(durations) / steps,
                "calls_per_step": len(durations) / steps,
            }
            for name, durations in ranked[:TOP_KERNELS]
        ],
    }


def profile_text(profile: Mapping[str, Any]) -> str:
    """The same for a person."""
    lines = [
        f"{profile['wall_seconds_per_step'] * 1e3:.4g} ms a step, device busy "
        f"{profile['busy_seconds_per_step'] * 1e3:.4g} ms, gaps {profile['gap_share']:.1%}, "
        f"{profile['kernels_per_step']:.0f} kernels a step"
    ]
    lines += [
        f"{kernel['share']:6.1%} {kernel['microseconds_per_step']:10.1f} us "
        f"{kernel['calls_per_step']:7.1f}x  {kernel['name']}"
        for kernel in profile["kernels"]
    ]
    return "\n".join(lines)


def read_options(
    description: str | None, *, cases: Sequence[str], contenders: Sequence[str]
) -> argparse.Namespace:
    """What the scripts have in common; `device` is ready to be used."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=formatter)
    parser.add_argument("--cases", nargs="+", choices=cases, default=list(cases), metavar="CASE")
    parser.add_argument("--contenders", nargs="+", choices=contenders, default=list(contenders))
    parser.add_argument("--device", type=torch.device, default="cuda")
    parser.add_argument("--seconds", type=float, default=15.0, help="of timed steps in each case")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="small networks and images: to try the script")
    parser.add_argument("--profile", action="store_true", help="also say which kernels take our time")
    parser.add_argument("--output", required=True, help="FILE.json; cases that it holds already are kept")
    torch.backends.cudnn.benchmark = True
    return parser.parse_args()


def keep(path: Path, *, case: str, found: Mapping[str, Any], device: str) -> None:
    """Adds a case to the file, with what is needed to make it again."""
    stored: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"cases": {}}
    arguments = ["FILE.json" if argument == str(path) else argument for argument in sys.argv[1:]]
    entry = {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments]),
        **found,
    }
    cases = {**stored["cases"], case: entry}
    report = {"machine": describe_machine(device), "cuda": torch.version.cuda, "cases": cases}
    path.write_text(json.dumps(report, indent=1) + "\n")
