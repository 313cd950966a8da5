"""`drivetrain evaluate RUN`: metrics of a run's checkpoints on one of its splits."""

import argparse
import json
import sys
from typing import Any

from drivetrain.cli.parsing.switch import add_compile, add_switch
from drivetrain.store.directory import open_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument(
        "--split",
        default="validation",
        choices=("validation", "test", "train", "all"),
        help="split of the data set to evaluate, as divided by the run; all: every sample, for data sets "
        "that come without splits (default: validation)",
    )
    parser.add_argument(
        "--checkpoint",
        default="newest",
        metavar="WHICH",
        help="newest, best, all, or an update number (default: newest)",
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", help="folder with the data set's files (default: as in training)"
    )
    add_switch(
        parser,
        "--flips",
        "average predictions over the image and its mirror images (default: as in training)",
    )
    parser.add_argument(
        "--tile-overlap",
        type=float,
        metavar="SHARE",
        help="segmentation: overlap of neighbouring tiles as a fraction of their side, from 0 to 0.9 "
        "(default: 0.25)",
    )
    add_switch(
        parser,
        "--overlay",
        "segmentation: write a picture of each image with true mask, prediction and errors",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, or another torch device (default: auto)")
    add_compile(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    directory = open_run(args.run)
    from drivetrain.console.reporter import Reporter, WarningsOnly
    from drivetrain.inference.evaluate.evaluate import evaluate_run, overlay_folder

    with WarningsOnly() if args.json else Reporter() as reporter:
        rows = evaluate_run(
            args.run,
            reporter=reporter,
            split=args.split,
            checkpoint=args.checkpoint,
            data_dir=args.data_dir,
            device=args.device,
            flips=args.flips,
            tile_overlap=args.tile_overlap,
            overlay=args.overlay,
            compiles=args.compile,
        )
        if args.json:
            sys.stdout.write(json.dumps({"evaluations": rows}, indent=2) + "\n")
        for row in rows:
            for line in _lines(row, split=args.split):
                reporter.say(line)
        for finding in rows[-1].get("findings", ()):
            reporter.say(f"finding: {finding}")
        table = f"images-{args.split}.csv" if "dice" in rows[-1] else f"confusion-{args.split}.csv"
        reporter.say(f"details: evaluation-{args.split}.json and {table} in {args.run}")
        if args.overlay:
            pictures = overlay_folder(directory, split=args.split)
            reporter.say(
                f"overlays of {rows[-1]['samples']} images at update {rows[-1]['update']}: {pictures}"
            )
    return 0


def _lines(row: dict[str, Any], *, split: str) -> list[str]:
    from drivetrain.console.figures import plain_numbers, table_lines

    samples = "1 sample" if row["samples"] == 1 else f"{row['samples']} samples"
    words = "  ".join(f"{split}_{name}: {value:.4f}" for name, value in plain_numbers(row).items())
    return [f"update {row['update']}  {words}  ({samples})", *table_lines(row)]
