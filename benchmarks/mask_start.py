"""How long a training waits for images with masks: the first start in a folder, and one that remembers it.

    python benchmarks/mask_start.py [--images 600] [--repeats 3] [--earlier SRC] [--output FILE.json]

Two folders are generated: `pairs` has an image and a mask of 512x512 each, `objects` an image of 256x256 and
a mask for each of its 30 objects. A start is a process of its own that finds and scans the files and reads
every sample; starts with an empty cache folder and with that of the start before take turns, and with them
starts of an earlier version, whose `src` folder --earlier names. Times of the processor are kept beside those
of the clock: a busy machine changes them less.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from drivetrain.bench.machine import describe_machine

RESULTS = Path(__file__).parent / "results"
PAIR_SIDE, OBJECT_SIDE, OBJECTS = 512, 256, 30
# Files of this moment are not remembered.
SETTLING_S = 3.0


def blurred(random: np.random.Generator, side: int) -> Image.Image:
    pixels = random.integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(2))


def disc(random: np.random.Generator, side: int, radius: int) -> np.ndarray[Any, Any]:
    rows, columns = np.ogrid[:side, :side]
    row, column = random.integers(0, side, 2)
    is_inside: np.ndarray[Any, Any] = (rows - row) ** 2 + (columns - column) ** 2 <= radius**2
    return is_inside


def write_pairs(folder: Path, *, images: int) -> None:
    random = np.random.default_rng(0)
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for number in range(images):
        mask = np.zeros((PAIR_SIDE, PAIR_SIDE), dtype=np.uint8)
        for _ in range(20):
            mask[disc(random, PAIR_SIDE, 20)] = 255
        blurred(random, PAIR_SIDE).save(folder / "images" / f"{number:04}.png", compress_level=1)
        Image.fromarray(mask).save(folder / "masks" / f"{number:04}.png")


def write_objects(folder: Path, *, images: int) -> None:
    random = np.random.default_rng(1)
    for number in range(images):
        place = folder / f"{number:04}"
        for name in ("images", "masks"):
            (place / name).mkdir(parents=True)
        blurred(random, OBJECT_SIDE).save(place / "images" / f"{number:04}.png", compress_level=1)
        for one in range(OBJECTS):
            mask = disc(random, OBJECT_SIDE, 9).astype(np.uint8) * 255
            Image.fromarray(mask).save(place / "masks" / f"{one:03}.png")


def start(folder: str) -> dict[str, float]:
    """What a training does before its first update: scan the files, read the samples."""
    import torch

    from drivetrain.data.feeds.resident_data import ResidentData
    from drivetrain.data.preprocess import build_preparation
    from drivetrain.data.splits import open_data
    from drivetrain.recipe.schema import Recipe

    recipe = Recipe(model="unet_same", dataset="mask-folder", data_dir=folder, validation_fraction=0.0)
    moments = [(time.perf_counter(), time.process_time())]
    data = open_data(recipe)
    moments.append((time.perf_counter(), time.process_time()))
    ResidentData(data.train, preprocess=build_preparation(recipe, data.spec), device=torch.device("cpu"))
    moments.append((time.perf_counter(), time.process_time()))
    names = (("scan", 0, 1), ("read", 1, 2), ("start", 0, 2))
    return {
        f"{name}_{clock}_s": round(moments[last][place] - moments[first][place], 3)
        for name, first, last in names
        for place, clock in enumerate(("clock", "processor"))
    }


def start_apart(folder: Path, cache: Path, *, source: str | None) -> dict[str, float]:
    command = [sys.executable, __file__, "--start", str(folder)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    if source is not None:
        environment["PYTHONPATH"] = source
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    found: dict[str, float] = json.loads(output)
    return found


def take_turns(folder: Path, *, repeats: int, earlier: str | None) -> dict[str, Any]:
    """A first start and one that remembers it, so many times."""
    kinds = ["first", "remembered", *(["earlier version"] if earlier else [])]
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            for kind in found:
                source = earlier if kind == "earlier version" else None
                found[kind].append(start_apart(folder, Path(cache), source=source))
                print(f"{folder.name} {repeat + 1}/{repeats} {kind}: {found[kind][-1]}", flush=True)
    medians = {
        kind: {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        for kind, runs in found.items()
    }
    ratios = {
        kind: {name: round(value / medians["remembered"][name], 2) for name, value in own.items()}
        for kind, own in medians.items()
    }
    return {"medians": medians, "times_of_remembered": ratios, "runs": found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", default=str(RESULTS / f"mask_start-cpu-{os.cpu_count()}-cores.json"))
    parser.add_argument("--earlier", metavar="SRC", help="the src folder of an earlier version")
    parser.add_argument("--start", metavar="DIR", help="one start in this folder, printed")
    args = parser.parse_args()
    if args.start:
        print(json.dumps(start(args.start)))
        return
    report: dict[str, Any] = {
        "command": f"python benchmarks/mask_start.py --images {args.images} --repeats {args.repeats}"
        + (" --earlier SRC" if args.earlier else ""),
        "machine": describe_machine("cpu"),
        "load_before": os.getloadavg()[0],
    }
    with tempfile.TemporaryDirectory() as scratch:
        folders = {"pairs": write_pairs, "objects": write_objects}
        for name, write in folders.items():
            write(Path(scratch) / name, images=args.images)
        time.sleep(SETTLING_S)
        for name in folders:
            report[name] = take_turns(Path(scratch) / name, repeats=args.repeats, earlier=args.earlier)
    Path(args.output).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
