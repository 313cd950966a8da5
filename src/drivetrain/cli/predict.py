"""`drivetrain predict RUN INPUT...`: class probabilities for image files."""

import argparse
from pathlib import Path

from drivetrain.run.directory import open_run

_SHOWN_ROWS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run directory")
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="image files, or folders of them")
    parser.add_argument(
        "--output", metavar="DIR", help="folder for the predictions (default: RUN/predictions)"
    )
    parser.add_argument("--format", default="csv", choices=("csv", "json", "both"), help="what to write")
    parser.add_argument(
        "--checkpoint", default="newest", metavar="WHICH", help="newest, best, or an update's number"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, or another device of torch")


def run(args: argparse.Namespace) -> int:
    open_run(args.run)
    from drivetrain.run.predict import predict_run
    from drivetrain.run.reporter import Reporter

    output = Path(args.output) if args.output else Path(args.run) / "predictions"
    formats = ("csv", "json") if args.format == "both" else (args.format,)
    with Reporter() as reporter:
        rows = predict_run(
            args.run,
            args.inputs,
            output=output,
            reporter=reporter,
            formats=formats,
            checkpoint=args.checkpoint,
            device=args.device,
        )
        for row in rows[:_SHOWN_ROWS]:
            reporter.say(f"{row['file']}  {row['class']}  {row['probability']:.1%}")
        if len(rows) > _SHOWN_ROWS:
            reporter.say(f"... and {len(rows) - _SHOWN_ROWS} more")
        reporter.say("written: " + ", ".join(str(output / f"predictions.{kind}") for kind in formats))
    return 0
