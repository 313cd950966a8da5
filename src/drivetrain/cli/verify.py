"""`drivetrain verify`: checks that a recipe's layouts compute the same, and prints the certificate."""

import argparse
import json
import sys

from drivetrain.cli.options import add_recipe_options, recipe_from_args
from drivetrain.core.errors import BadInputError
from drivetrain.verify.layouts import parse_cuts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_options(parser)
    parser.add_argument(
        "--layouts",
        metavar="TEXT",
        default="",
        help="layouts to verify, separated by ;: 'replicas=2,accumulation=2; stages=2,schedule=gpipe'; "
        "keys: replicas, accumulation, group, stages, splits, split_by, schedule, mapping, recomputation, "
        "offloading, and processes=1 to simulate all devices in one process (default: a standard set)",
    )
    parser.add_argument(
        "--updates",
        metavar="INT",
        type=int,
        help="number of weight updates whose losses are compared (default: 10, with --quick: 2)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64", "both"),
        help="floating-point type to compute in (default: both, with --quick: float64 for "
        "batch-norm groups and float32 for other layouts)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="verify one layout per family in a batch of 4 samples: replicas, batch-norm groups or "
        "accumulation, stages, recomputation, stages on ranks",
    )
    parser.add_argument(
        "--require",
        choices=("equal", "identical"),
        default="equal",
        help="what every layout must be for exit status 0: equal within rounding, or identical, bit for "
        "bit, to one process that computes the same micro-batches (default: equal)",
    )
    parser.add_argument("--json", action="store_true", help="print the certificate as JSON")


def run(args: argparse.Namespace) -> int:
    cuts = parse_cuts(args.layouts)
    if args.updates is not None and args.updates < 1:
        raise BadInputError(f"--updates {args.updates} must be at least 1; --updates 10 works.")
    resolved = recipe_from_args(args)
    from rich.console import Console

    from drivetrain.console.reporter import Reporter
    from drivetrain.verify.certificate import verify_resolved
    from drivetrain.verify.measure import dtypes_named
    from drivetrain.verify.table import print_certificate

    with Reporter(verbosity=resolved.recipe.verbosity, quiet=args.json) as reporter:
        certificate = verify_resolved(
            resolved,
            reporter=reporter,
            cuts=cuts,
            updates=args.updates,
            dtypes=dtypes_named(args.dtype),
            quick=args.quick,
            requires=args.require,
        )
    if args.json:
        sys.stdout.write(json.dumps(certificate.to_json(), indent=2) + "\n")
    else:
        print_certificate(certificate, console=Console())
    return 0 if certificate.ok else 1
