"""`drivetrain evaluate RUN`: metrics of a run's checkpoints on one of its splits."""

import argparse
import json
import sys
from typing import Any

from drivetrain.run.directory import open_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run directory")
    parser.add_argument(
        "--split", default="validation", choices=("validation", "test", "train"), help="samples to measure on"
    )
    parser.add_argument(
        "--checkpoint", default="newest", metavar="WHICH", help="newest, best, all, or an update's number"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where the data set's files are now")
    parser.add_argument("--device", default="auto", help="auto, cpu, or another device of torch")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    open_run(args.run)
    from drivetrain.run.evaluate import evaluate_run
    from drivetrain.run.reporter import Reporter

    with Reporter(quiet=args.json) as reporter:
        rows = evaluate_run(
            args.run,
            reporter=reporter,
            split=args.split,
            checkpoint=args.checkpoint,
            data_dir=args.data_dir,
            device=args.device,
        )
        if args.json:
            sys.stdout.write(json.dumps({"evaluations": rows}, indent=2) + "\n")
        for row in rows:
            reporter.say(
                f"update {row['update']}  {args.split}_loss: {row['loss']:.4f}  "
                f"{args.split}_accuracy: {row['accuracy']:.4f}  {_top5(row)}({row['samples']} samples)"
            )
        reporter.say(
            f"per class and confusion: evaluation-{args.split}.json, confusion-{args.split}.csv in {args.run}"
        )
    return 0


def _top5(row: dict[str, Any]) -> str:
    return f"top5_accuracy: {row['top5_accuracy']:.4f}  " if "top5_accuracy" in row else ""
