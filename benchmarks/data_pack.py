"""Samples per second out of single files, out of a pack of them, and out of a pack of decoded images.

    python benchmarks/data_pack.py [--samples 400] [--image-size 96] [--repeats 5]

The images are JPEGs of photograph-like noise in odd sizes. The three take turns; every repeat fetches all
samples in a new random order, batch by batch; medians are compared. Warm: the files are in
the page cache, so that the work per sample is measured. Cold: they are dropped from it before every repeat,
which works because each measurement has a process of its own and no other maps the files.
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from drivetrain.data.commands.write_pack import PackRequest, write_pack
from drivetrain.data.source import Source
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe

RESULTS = Path(__file__).parent / "results"
BATCH = 32


def write_folder(folder: Path, *, samples: int) -> None:
    random = np.random.default_rng(0)
    for index in range(samples):
        height, width = random.integers(200, 500, 2)
        place = folder / f"class-{index % 4}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        image = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(2))
        image.save(place / f"{index:05}.jpg", quality=85)


def open_source(folder: Path, *, image_size: int) -> Source:
    recipe = Recipe(
        dataset="image-folder", data_dir=str(folder), image_size=image_size, validation_fraction=0.0
    )
    return open_data(recipe).train


def drop_from_page_cache(folder: Path) -> None:
    os.sync()
    for path in (path for path in folder.rglob("*") if path.is_file()):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure_apart(source: Source, *, seed: int) -> float:
    with multiprocessing.get_context("fork").Pool(1) as process:
        return process.apply(samples_per_second, (source,), {"seed": seed})


def samples_per_second(source: Source, *, seed: int) -> float:
    order = np.random.default_rng(seed).permutation(len(source))
    started = time.perf_counter()
    for first in range(0, len(order), BATCH):
        source.fetch(order[first : first + BATCH])
    return len(order) / (time.perf_counter() - started)


def measure(*, samples: int, image_size: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        files, pack, decoded = (Path(scratch) / name for name in ("files", "pack", "decoded"))
        write_folder(files, samples=samples)
        write_pack(files, pack, request=PackRequest())
        write_pack(files, decoded, request=PackRequest(image_size=image_size))
        contenders = {"single files": files, "pack": pack, "pack of decoded images": decoded}
        sources = {name: open_source(path, image_size=image_size) for name, path in contenders.items()}
        rates: dict[tuple[str, str], list[float]] = {}
        for repeat in range(repeats):
            for name, source in sources.items():
                for state in ("cold", "warm"):
                    if state == "cold":
                        drop_from_page_cache(contenders[name])
                    rates.setdefault((state, name), []).append(measure_apart(source, seed=repeat))
    medians: dict[str, Any] = {"cold": {}, "warm": {}}
    for (state, name), values in rates.items():
        medians[state][name] = round(statistics.median(values), 1)
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    medians = measure(samples=args.samples, image_size=args.image_size, repeats=args.repeats)
    for state, rates in medians.items():
        for name, rate in rates.items():
            print(f"{state} {name:<24} {rate:>10} samples/s")
    cores = os.cpu_count()
    result = {
        "benchmark": "data_pack",
        "settings": vars(args),
        "samples_per_second": medians,
        "machine": {"cores": cores, "python": platform.python_version(), "processor": platform.machine()},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"data_pack-cpu-{cores}-cores.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
