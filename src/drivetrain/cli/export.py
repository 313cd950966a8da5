"""`drivetrain export RUN`: exports a run's model with torch.export and to ONNX."""

import argparse

from drivetrain.cli.parsing.switch import add_switch
from drivetrain.core.errors import BadInputError
from drivetrain.store.directory import open_run

_DEFAULT_TOLERANCE = 1e-4
_WEIGHTS = "safetensors"
_NAMINGS = ("own", "torchvision", "timm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument("--output", metavar="DIR", help="folder for the files (default: RUN/export)")
    parser.add_argument(
        "--format",
        nargs="+",
        metavar="NAME",
        help="pt2 (torch.export), onnx, or safetensors (the weights alone) (default: pt2, and onnx if the "
        "packages of the extra `onnx` are installed)",
    )
    parser.add_argument(
        "--names",
        choices=_NAMINGS,
        help="write the weights alone, as --format safetensors, under the model's own names, or those of "
        "resnet18 to resnet152 under the names of torchvision, which timm uses too (default: own)",
    )
    parser.add_argument(
        "--checkpoint",
        default="newest",
        metavar="WHICH",
        help="newest, best, or an update number (default: newest)",
    )
    parser.add_argument(
        "--gives",
        choices=("probabilities", "classes"),
        default="probabilities",
        help="output of the model: probabilities of all classes, or the most likely class; for segmentation "
        "of each pixel (default: probabilities)",
    )
    add_switch(
        parser, "--fold-batch-norm", "fold batch norms into the preceding convolutions (default: True)"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=_DEFAULT_TOLERANCE,
        metavar="X",
        help="largest allowed difference between the exported model's output and the run's own; with "
        f"--gives classes, the fraction of classes that differ (default: {_DEFAULT_TOLERANCE:g})",
    )


def _formats(args: argparse.Namespace) -> tuple[str, ...] | None:
    """The formats asked for; --names alone asks for the weights."""
    if args.format is None:
        return None if args.names is None else (_WEIGHTS,)
    if args.names is not None and _WEIGHTS not in args.format:
        raise BadInputError(
            f"--names {args.names} has no effect on --format {' '.join(args.format)}, which holds a program; "
            f"--format {_WEIGHTS} works."
        )
    return tuple(args.format)


def _names_in_words(naming: str | None) -> str:
    return "the model's own names" if naming in (None, "own") else f"the names of {naming}"


def run(args: argparse.Namespace) -> int:
    open_run(args.run)
    if not args.tolerance >= 0:
        raise BadInputError(f"--tolerance {args.tolerance:g} must be at least 0; --tolerance 1e-4 works.")
    from drivetrain.console.reporter import Reporter
    from drivetrain.inference.export.export import export_run
    from drivetrain.inference.export.export_formats import available_formats, missing_packages

    formats = _formats(args)
    with Reporter() as reporter:
        result = export_run(
            args.run,
            reporter=reporter,
            output=args.output,
            formats=formats,
            checkpoint=args.checkpoint,
            gives=args.gives,
            folds=args.fold_batch_norm is not False,
            tolerance=args.tolerance,
            naming=args.names or "own",
        )
        if result.weights is not None:
            reporter.say(f"{result.weights}: the weights under {_names_in_words(args.names)}")
        for file, difference in result.differences.items():
            reporter.say(f"{result.folder / file}: largest difference from the run's output {difference:.3g}")
        if formats is None and "onnx" not in available_formats():
            reporter.say(f"model.onnx was not written; it needs: pip install {' '.join(missing_packages())}")
        reporter.say(result.usage)
        reporter.say(f"{result.folder / 'export.json'} describes input, output and classes")
    return 0
