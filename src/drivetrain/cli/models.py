"""`drivetrain models`: lists the models, or shows one layer by layer."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from drivetrain.catalogue.models import (
    ModelInfo,
    check_image_size,
    check_model_name,
    find_models,
    is_external_model,
    model_info,
    model_names,
    output_margin_of,
)
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean

if TYPE_CHECKING:
    from rich.table import Table

    from drivetrain.models.summary import LayerRow, ModelTotals


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `drivetrain models`."""
    parser.usage = (
        f"{parser.prog} [PATTERN] [--json]\n"
        f"       {parser.prog} show NAME [--channels N] [--image-size N] [--num-classes N] [--json]"
    )
    parser.add_argument(
        "words", nargs="*", metavar="PATTERN | show NAME", help="list matching models, or show one in detail"
    )
    for option, help_text in (
        ("--channels", "show: number of image channels"),
        ("--image-size", "show: height and width of the images in pixels"),
        ("--num-classes", "show: number of classes"),
    ):
        parser.add_argument(option, type=int, metavar="N", help=f"{help_text} (default: the model's own)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Lists models, or shows one layer by layer."""
    words: list[str] = args.words[1:] if args.words[:1] == ["list"] else args.words
    if words[:1] == ["show"]:
        if len(words) != 2:
            raise BadInputError(
                "models show needs exactly one NAME, as in: drivetrain models show cifar_resnet8"
            )
        _show(words[1], args)
    else:
        if len(words) > 1:
            raise BadInputError(f"models takes one PATTERN, not {len(words)}; quote it: '{words[0]}*'")
        _check_no_shape(args)
        _list(words[0] if words else None, as_json=args.json)
    return 0


def _check_no_shape(args: argparse.Namespace) -> None:
    for word in ("channels", "image_size", "num_classes"):
        if getattr(args, word) is not None:
            raise BadInputError(f"--{word.replace('_', '-')} has no effect without show NAME; leave it out.")


def _list(pattern: str | None, *, as_json: bool) -> None:
    infos = find_models(pattern)
    if not infos:
        raise BadInputError(
            f"PATTERN {pattern} matches no model.{did_you_mean(pattern or '', model_names())} "
            f"Models: {', '.join(model_names())}."
        )
    if as_json:
        _print_json([asdict(info) for info in infos])
    else:
        _print_table(_list_table(infos))


def _list_table(infos: list[ModelInfo]) -> "Table":
    table = _new_table("model", "image", "classes", "description", right=("classes",))
    for info in infos:
        shape = (info.channels, info.image_size, info.image_size)
        table.add_row(info.name, _format_shape(shape), str(info.num_classes), info.description)
    return table


def _show(name: str, args: argparse.Namespace) -> None:
    channels, image_size = _image_shape(name, args)

    from drivetrain.models.create import build_model
    from drivetrain.models.summary import describe_layers, summarise_model

    model = build_model(
        name,
        channels=channels,
        image_size=image_size,
        num_classes=args.num_classes,
        seed=0,
        params={},
        draws_weights=False,
    )
    input_size = image_size + 2 * output_margin_of(name)
    rows = describe_layers(model, channels=channels, image_size=input_size)
    totals = summarise_model(model, channels=channels, image_size=input_size)
    if args.json:
        shown = {"model": name, "channels": channels, "image_size": image_size}
        _print_json({**shown, "layers": [asdict(row) for row in rows], "totals": asdict(totals)})
    else:
        _print_table(_layer_table(rows), last_line=_totals_line(totals))


def _image_shape(name: str, args: argparse.Namespace) -> tuple[int, int]:
    """Channels and side of the images: those typed, or the model's own; a user's own model has none."""
    check_model_name(name)
    if is_external_model(name):
        if args.channels is None or args.image_size is None:
            raise BadInputError(
                f"models show {name} needs the shape of its images; add --channels 3 --image-size 32."
            )
        return args.channels, args.image_size
    info = model_info(name)
    channels = info.channels if args.channels is None else args.channels
    image_size = info.image_size if args.image_size is None else args.image_size
    check_image_size(info, image_size)
    return channels, image_size


def _layer_table(rows: "list[LayerRow]") -> "Table":
    table = _new_table("layer", "kind", "output", "parameters", "FLOPs", right=("parameters", "FLOPs"))
    for row in rows:
        size = (str(row.parameters), _format_flops(row.flops))
        table.add_row(row.name, row.kind, _format_shape(row.output_shape), *size)
    return table


def _totals_line(totals: "ModelTotals") -> str:
    return (
        f"total: {totals.parameters} parameters, {totals.trainable} trainable; "
        f"{totals.buffers} running statistics; {_format_flops(totals.flops)} FLOPs per image"
    )


def _new_table(*headers: str, right: tuple[str, ...]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        # A truncated name could not be copied, so it wraps to the next line on a narrow terminal.
        table.add_column(header, justify="right" if header in right else "left", overflow="fold")
    return table


def _print_table(table: "Table", *, last_line: str | None = None) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000
    console.print(table)
    if last_line is not None:
        console.print(last_line, soft_wrap=True)


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def _format_shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _format_flops(flops: int) -> str:
    """Three digits and a unit, such as 4.72 M; numbers below 1000 have no unit."""
    value = float(flops)
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value:.3g} T"
