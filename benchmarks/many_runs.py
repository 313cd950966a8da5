"""How long pages of many long runs take: `drivetrain report` of all of them, and the live server.

    python benchmarks/many_runs.py [--runs 50] [--points 10000] [--repeats 3] [--output FILE.json]

The runs are written by hand: each has a training log at every point and a validation at every hundredth. The
live server is started anew for each repeat; "all rows" is the time from there until its list has all runs.
Pages are opened in chromium if playwright is installed, from the request until everything is drawn. Times of
the processor are kept beside those of the clock: a busy machine changes them less.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from drivetrain.bench.machine import describe_machine
from drivetrain.core.files import write_json
from drivetrain.recipe.load import recipe_to_yaml, resolve_recipe
from drivetrain.store.origins import write_origins
from drivetrain.store.update_history import write_history

RESULTS = Path(__file__).parent / "results"
BROWSER_FLAGS = ["--no-sandbox", "--disable-gpu"]
ROWS = "document.querySelectorAll('tbody tr').length"
POINTS = "window.drivetrainPage ? drivetrainPage.charts().length : 0"


def write_run(path: Path, *, points: int, number: int) -> None:
    """A finished run with a log at every update."""
    path.mkdir(parents=True)
    resolved = resolve_recipe(config="digits", overrides={"max_updates": points, "seed": number})
    (path / "recipe.yaml").write_text(recipe_to_yaml(resolved.recipe))
    write_origins(path / "origins.json", resolved.origins)
    write_json(path / "identity.json", {"seed": number, "model": "cifar_resnet8", "dataset": "digits"})
    write_json(path / "plan.json", {"total_updates": points})
    loss = 2 * np.exp(-np.arange(points) / 3000) + np.random.default_rng(number).normal(0, 0.1, points)
    write_history(path / "updates.npz", {"loss": loss, "accuracy": 1 - loss / 3, "learning_rate": loss / 20})
    with (path / "metrics.jsonl").open("w") as file:
        for update, value in enumerate(loss.tolist(), 1):
            seen = {
                "update": update,
                "elapsed_seconds": update / 10,
                "loss": value,
                "accuracy": 1 - value / 3,
            }
            file.write(json.dumps({"event": "train", **seen, "images_per_second": 80.0 + value}) + "\n")
            if update % 100 == 0:
                file.write(json.dumps({"event": "validation", **seen}) + "\n")
        file.write(json.dumps({"event": "summary", "update": points}) + "\n")


def report_of_all(runs: list[Path], output: Path) -> dict[str, float]:
    """`drivetrain report` of all runs, without the start of the interpreter."""
    from drivetrain.report.collect.pages import contents_of
    from drivetrain.report.page.render import render_page

    clock_s, processor_s = time.perf_counter(), time.process_time()
    output.write_text(render_page(contents_of(runs)))
    return {
        "report_clock_s": time.perf_counter() - clock_s,
        "report_processor_s": time.process_time() - processor_s,
        "report_megabytes": output.stat().st_size / 1e6,
    }


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The live server as a process of its own, and its address."""
    command = [sys.executable, "-m", "drivetrain", "report", "--live", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), psutil.Process(server.pid)
        finally:
            server.terminate()


def live(folder: Path, *, runs: int, browser: Any) -> dict[str, float]:
    """The list and a page, first over HTTP and then drawn."""
    begin_s = time.perf_counter()
    with served(folder) as (address, process):

        def ask(path: str) -> Any:
            with urllib.request.urlopen(f"{address}{path}", timeout=60) as answer:
                return answer.read()

        while len(json.loads(ask("api/runs"))["runs"]) < runs:
            time.sleep(0.01)
        times = process.cpu_times()
        found = {
            "all_rows_clock_s": time.perf_counter() - begin_s,
            "all_rows_processor_s": times.user + times.system,
            "list_again_clock_s": clock(lambda: ask("api/runs")),
            "page_clock_s": clock(lambda: ask("run/run-00")),
            "page_again_clock_s": clock(lambda: ask("run/run-00")),
        }
        if browser is not None:
            found["list_drawn_clock_s"] = drawn(browser, address, f"{ROWS} >= {runs}")
            found["page_drawn_clock_s"] = drawn(browser, f"{address}run/run-01", f"{POINTS} > 0")
        return found


def clock(act: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    act()
    return time.perf_counter() - begin_s


def drawn(browser: Any, address: str, is_there: str) -> float:
    """Seconds until a page has drawn what it shows."""
    page = browser.new_page()
    begin_s = time.perf_counter()
    page.goto(address)
    while not page.evaluate(is_there):
        time.sleep(0.01)
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    took_s = time.perf_counter() - begin_s
    page.close()
    return took_s


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, or None."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        yield None
        return
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=BROWSER_FLAGS)
        yield browser
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", default=str(RESULTS / f"many_runs-cpu-{os.cpu_count()}-cores.json"))
    args = parser.parse_args()
    load = os.getloadavg()[0]
    measured = []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        paths = [Path(folder) / "runs" / f"run-{number:02}" for number in range(args.runs)]
        for number, path in enumerate(paths):
            write_run(path, points=args.points, number=number)
        for repeat in range(args.repeats):
            found = report_of_all(paths, Path(folder) / "report.html")
            found |= live(Path(folder) / "runs", runs=args.runs, browser=browser)
            measured.append({name: round(value, 3) for name, value in found.items()})
            print(f"{repeat + 1}/{args.repeats}: {measured[-1]}", flush=True)
    sheet = {
        "command": f"python benchmarks/many_runs.py --runs {args.runs} --points {args.points} "
        f"--repeats {args.repeats}",
        "machine": describe_machine(),
        "load_before": load,
        "medians": {name: statistics.median(run[name] for run in measured) for name in measured[0]},
        "repeats": measured,
    }
    Path(args.output).write_text(json.dumps(sheet, indent=2) + "\n")


if __name__ == "__main__":
    main()
