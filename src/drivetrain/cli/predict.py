"""`drivetrain predict RUN INPUT...`: predicts class probabilities or masks of image files."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drivetrain.cli.parsing.switch import add_compile, add_switch
from drivetrain.core.errors import RunFailedError
from drivetrain.store.directory import open_run

_SHOWN_ROWS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="+",
        help="image files, or folders with images; of a run on a table or on signals, .csv or .npy files",
    )
    parser.add_argument(
        "--output", metavar="DIR", help="folder for the predictions (default: RUN/predictions)"
    )
    parser.add_argument(
        "--format",
        default="csv",
        choices=("csv", "json", "both"),
        help="format of the table of predictions (default: csv)",
    )
    parser.add_argument(
        "--checkpoint",
        default="newest",
        metavar="WHICH",
        help="newest, best, or an update number (default: newest)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, or another torch device (default: auto)")
    add_compile(parser)
    add_switch(
        parser,
        "--flips",
        "average predictions over the image and its mirror images: slower, often better (default: as in "
        "training)",
    )
    _add_mask_arguments(parser.add_argument_group("masks", "only for segmentation runs"))


def _add_mask_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mask-format",
        choices=("png", "tiff"),
        help="file format of the masks (default: png; an input TIFF with several pages gives a TIFF with as "
        "many pages)",
    )
    add_switch(
        group,
        "--probabilities",
        "also write a float32 TIFF of probabilities per input: all classes of page 1, then of page 2, ...",
    )
    add_switch(group, "--overlay", "write a picture of each image beside its coloured mask (default: True)")
    group.add_argument(
        "--tile-overlap",
        type=float,
        metavar="SHARE",
        help="overlap of neighbouring tiles as a fraction of their side, from 0 to 0.9 (default: 0.25)",
    )


def run(args: argparse.Namespace) -> int:
    open_run(args.run)
    from drivetrain.console.reporter import Reporter
    from drivetrain.inference.predict.inputs import InputNotes
    from drivetrain.inference.predict.mask_settings import MaskSettings
    from drivetrain.inference.predict.predict import predict_run

    output = Path(args.output) if args.output else Path(args.run) / "predictions"
    formats = ("csv", "json") if args.format == "both" else (args.format,)
    notes = InputNotes()
    with Reporter() as reporter:
        rows = predict_run(
            args.run,
            args.inputs,
            output=output,
            reporter=reporter,
            formats=formats,
            checkpoint=args.checkpoint,
            device=args.device,
            compiles=args.compile,
            notes=notes,
            masks=MaskSettings(
                mask_format=args.mask_format,
                probabilities=args.probabilities,
                overlay=args.overlay,
                flips=args.flips,
                tile_overlap=args.tile_overlap,
            ),
        )
        for line in _shown(rows):
            reporter.say(line)
        written = ", ".join(str(output / f"predictions.{kind}") for kind in formats)
        reporter.say(f"written: {written}" + (f", masks in {output}" if "mask" in rows[0] else ""))
    return RunFailedError.exit_status if notes.left_out else 0


def _shown(rows: Sequence[dict[str, Any]]) -> list[str]:
    pages = Counter(row["file"] for row in rows)
    lines = [
        _mask_line(row, pages=pages[row["file"]]) if "mask" in row else _class_line(row)
        for row in rows[:_SHOWN_ROWS]
    ]
    return lines if len(rows) <= _SHOWN_ROWS else [*lines, f"... and {len(rows) - _SHOWN_ROWS} more"]


def _class_line(row: dict[str, Any]) -> str:
    sample = f"  sample {row['sample']}" if "sample" in row else ""
    return f"{row['file']}{sample}  {row['class']}  {row['probability']:.1%}"


def _mask_line(row: dict[str, Any], *, pages: int) -> str:
    shares = ", ".join(f"{name} {share:.1%}" for name, share in row["shares"].items())
    page = f"page {row['page']}  " if pages > 1 else ""
    return f"{row['file']}  {page}{row['height']}x{row['width']}  {shares}"
