"""`drivetrain monitor`: what the accelerators, CPUs and runs of this host are doing."""

import argparse
import json
import math
import sys
import time
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.store.directory import DEFAULT_PARENT, open_run

_INTERVAL_S, _LEAST_INTERVAL_S = 2.0, 0.2
# Processor times count from one look to the next; the first look is not shown.
_FIRST_LOOK_S = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="*",
        help="runs whose ranks are shown wherever they are (default: those going on in --runs-dir)",
    )
    parser.add_argument(
        "--runs-dir",
        default=str(DEFAULT_PARENT),
        metavar="DIR",
        help=f"folder that contains the runs (default: {DEFAULT_PARENT})",
    )
    parser.add_argument("--once", action="store_true", help="print one table and end")
    parser.add_argument(
        "--json", action="store_true", help="print JSON, without --once one line per interval"
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=_INTERVAL_S,
        metavar="SECONDS",
        help=f"seconds between two looks (default: {_INTERVAL_S:g})",
    )


def run(args: argparse.Namespace) -> int:
    """Shows the host until Ctrl-C, or once."""
    if not math.isfinite(args.interval) or args.interval < _LEAST_INTERVAL_S:
        raise BadInputError(
            f"--interval {args.interval:g} is below {_LEAST_INTERVAL_S:g} seconds; try --interval 2."
        )
    named = _named_runs(args)
    from drivetrain.monitor.beats import beats_of, runs_in
    from drivetrain.monitor.host import LocalHost
    from drivetrain.monitor.snapshot import Snapshot, take_snapshot
    from drivetrain.monitor.snapshot_json import snapshot_as_json
    from drivetrain.monitor.watch import show_in_place, show_once, write_each

    host = LocalHost()

    def take() -> Snapshot:
        reading = host.sample()
        runs = named or runs_in(Path(args.runs_dir))
        return take_snapshot(reading, beats_of(runs, reading), named=named)

    try:
        host.sample()
        time.sleep(_FIRST_LOOK_S)
        if args.once and args.json:
            sys.stdout.write(json.dumps(snapshot_as_json(take()), indent=2) + "\n")
        elif args.once:
            show_once(take(), sys.stdout)
        elif args.json or not sys.stdout.isatty():
            write_each(take, sys.stdout, as_json=args.json, interval_s=args.interval)
        else:
            show_in_place(take, interval_s=args.interval)
    except KeyboardInterrupt:
        # The usual way to end it.
        return 0
    return 0


def _named_runs(args: argparse.Namespace) -> list[Path]:
    """The runs on the command line; a cross-validation stands for its folds."""
    from drivetrain.store.listing import folds_of

    folder = Path(args.runs_dir)
    if args.runs_dir != str(DEFAULT_PARENT) and not folder.is_dir():
        raise BadInputError(
            f"--runs-dir {folder} does not exist; the default is --runs-dir {DEFAULT_PARENT}."
        )
    named: list[Path] = []
    for path in args.runs:
        folds = [found.path for found in folds_of(Path(path))]
        named += folds or [open_run(path).path]
    return named
