"""`drivetrain models`: lists the models, or shows one layer by layer."""

import argparse
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
from drivetrain.cli.listing.library_models import facts_lines, facts_of, list_library
from drivetrain.cli.listing.model_tables import (
    format_shape,
    layer_table,
    new_table,
    print_json,
    print_table,
    totals_line,
)
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean

if TYPE_CHECKING:
    from rich.table import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `drivetrain models`."""
    parser.usage = (
        f"{parser.prog} [PATTERN] [--json]\n"
        f"       {parser.prog} --from LIBRARY [PATTERN] [--json]\n"
        f"       {parser.prog} show NAME [--channels N] [--image-size N] [--num-classes N] [--json]"
    )
    parser.add_argument(
        "words", nargs="*", metavar="PATTERN | show NAME", help="list matching models, or show one in detail"
    )
    parser.add_argument(
        "--from",
        dest="library",
        nargs="+",
        metavar=("LIBRARY", "PATTERN"),
        help="list the models of a library that match: timm, torchvision, hf (transformers) or smp",
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
    if args.library is not None:
        words = [*words, *args.library[1:]]
    if words[:1] == ["show"]:
        if len(words) != 2:
            raise BadInputError(
                "models show needs exactly one NAME, as in: drivetrain models show cifar_resnet8"
            )
        if args.library is not None:
            raise BadInputError(f"--from has no effect on show; write show {args.library[0]}/NAME.")
        _show(words[1], args)
    else:
        if len(words) > 1:
            raise BadInputError(f"models takes one PATTERN, not {len(words)}; quote it: '{words[0]}*'")
        _check_no_shape(args)
        pattern = words[0] if words else None
        if args.library is None:
            _list(pattern, as_json=args.json)
        else:
            list_library(args.library[0], pattern, as_json=args.json)
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
        print_json([asdict(info) for info in infos])
    else:
        print_table(_list_table(infos))


def _list_table(infos: list[ModelInfo]) -> "Table":
    table = new_table("model", "image", "classes", "description", right=("classes",))
    for info in infos:
        shape = (info.channels, info.image_size, info.image_size)
        table.add_row(info.name, format_shape(shape), str(info.num_classes), info.description)
    return table


def _show(name: str, args: argparse.Namespace) -> None:
    channels, image_size = _image_shape(name, args)

    from drivetrain.models.create import build_model
    from drivetrain.models.summary import describe_layers, summarise_model

    facts = facts_of(name)
    model = build_model(
        name,
        channels=channels,
        image_size=image_size,
        num_classes=args.num_classes,
        seed=0,
        params={},
        draws_weights=False,
        task=None if facts is None else facts.task,
    )
    input_size = image_size + 2 * output_margin_of(name)
    rows = describe_layers(model, channels=channels, image_size=input_size)
    totals = summarise_model(model, channels=channels, image_size=input_size)
    if args.json:
        shown = {"model": name, "channels": channels, "image_size": image_size}
        layers = {"layers": [asdict(row) for row in rows], "totals": asdict(totals)}
        print_json({**shown, **layers, **({} if facts is None else {"library": asdict(facts)})})
    else:
        about = [] if facts is None else facts_lines(facts)
        print_table(layer_table(rows), last_lines=[totals_line(totals), *about])


def _image_shape(name: str, args: argparse.Namespace) -> tuple[int, int]:
    """Channels and side of the images: those typed, or the model's own; a user's own model has none."""
    check_model_name(name)
    facts = facts_of(name)
    if facts is not None:
        return args.channels or facts.channels, args.image_size or facts.image_size
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
