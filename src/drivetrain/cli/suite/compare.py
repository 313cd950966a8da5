"""`drivetrain bench compare` for the results of suites."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivetrain.bench.result_table import check_output
from drivetrain.console.reporter import Reporter
from drivetrain.console.tables import text_table
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_json

if TYPE_CHECKING:
    from drivetrain.bench.suite.speedups import Pair

__all__ = ["compare_suite_files"]


def compare_suite_files(args: argparse.Namespace) -> int:
    """Runs `bench compare` on results of suites: a table of speed-ups and, with --figure, the figures."""
    if args.picture is not None:
        raise BadInputError(f"--picture {args.picture} is not for results of suites; --figure works.")
    output = check_output(args.output, suffixes=(".json",))
    figure = None if args.figure is None else _figure_path(args.figure)
    if args.intensity is not None and figure is None:
        raise BadInputError(
            f"--intensity {args.intensity} has no effect without --figure; add --figure or leave it out."
        )
    from drivetrain.bench.suite.figure import draw_rooflines, draw_speedups
    from drivetrain.bench.suite.speedups import compare_suites, differing_settings, read_suite, speedup_rows

    pairs = compare_suites(args.files)
    is_single = len(args.files) == 1
    if not pairs and not (is_single and figure is not None):
        raise BadInputError(
            f"{' and '.join(args.files)} have no cases to compare; measure the same networks and batch sizes "
            "in both, or two variants in one."
        )
    if args.intensity is not None and not pairs:
        raise BadInputError(
            f"--intensity {args.intensity} has no effect on rooflines, and {args.files[0]} has no two "
            "variants to compare; leave it out."
        )
    written = []
    with Reporter() as reporter:
        for line in text_table(speedup_rows(pairs)) if pairs else ():
            reporter.result(line)
        for sentence in differing_settings(args.files):
            reporter.result(f"note: {sentence}")
        if figure is not None and pairs:
            written += draw_speedups(pairs, figure, per=args.intensity or "parameter")
        if figure is not None and is_single:
            written += draw_rooflines(read_suite(args.files[0]), figure)
        if output is not None:
            write_json(output, {"benchmark": "suite", "pairs": [_pair_json(pair) for pair in pairs]})
            written.append(output)
        if written:
            reporter.say(f"written: {', '.join(map(str, written))}")
    return 0


def _figure_path(name: str) -> Path:
    """The path of the figures without a suffix."""
    path = Path(name)
    if path.suffix.lower() in (".png", ".svg"):
        path = path.with_suffix("")
    if not path.parent.is_dir():
        raise BadInputError(
            f"--figure {name} is in a folder that does not exist; --figure {path.name} works."
        )
    return path


def _pair_json(pair: "Pair") -> dict[str, Any]:
    cases = [
        {
            "work": each.work,
            "model": each.model,
            "batch_size": each.batch_size,
            "speedup": each.speedup,
            "flops_per_parameter": each.per_parameter,
            "flops_per_byte": each.per_byte,
        }
        for each in pair.speedups
    ]
    return {"base": pair.base, "other": pair.other, "cases": cases}
