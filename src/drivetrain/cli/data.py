"""`drivetrain data`: lists, looks at, downloads, checks and packs data sets."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivetrain.catalogue.data_sets import DatasetInfo, dataset_info, dataset_names
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.core.files import write_atomically
from drivetrain.recipe.checks.task import TABLE_FIELDS
from drivetrain.recipe.fields import option_name
from drivetrain.recipe.schema import Recipe

if TYPE_CHECKING:
    from drivetrain.console.reporter import Reporter
    from drivetrain.data.commands.check_files import CheckedDataset
    from drivetrain.data.commands.fetch_table import RemoteFile

_MOST_NAMED = 20
_MOST_SIZES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the actions `list`, `look`, `fetch`, `check` and `pack`."""
    actions = parser.add_subparsers(dest="action", metavar="list|look|fetch|check|pack", required=True)
    listing = actions.add_parser("list", help="list all data sets")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    look = actions.add_parser("look", help="recognise a folder, measure its images and draw them")
    look.add_argument("directory", metavar="DIR", help="folder with your data")
    look.add_argument("--dataset", metavar="NAME", help="how to read it, if that is not clear")
    _add_table_options(look)
    look.add_argument(
        "--output", metavar="FILE", help="the picture to write (default: NAME-look.png in the current folder)"
    )
    look.add_argument("--json", action="store_true", help="print JSON instead of text")
    fetch = actions.add_parser("fetch", help="download a data set")
    fetch.add_argument("name", metavar="NAME", help="mnist, cifar10, cifar100 or isbi2012")
    _add_data_dir(fetch, help_text="folder to download to")
    fetch.add_argument("--mirror", metavar="URL", help="URL of a folder to try first")
    check = actions.add_parser("check", help="read every sample of a data set and check the counts")
    check.add_argument("name", metavar="NAME", help="a name listed by `drivetrain data list`")
    _add_data_dir(check, help_text="folder with the data set's files")
    _add_table_options(check)
    check.add_argument("--json", action="store_true", help="print JSON instead of text")
    pack = actions.add_parser("pack", help="pack an image folder into large files that read faster")
    pack.add_argument("source", metavar="SRC", help="image folder to pack")
    pack.add_argument("destination", metavar="DEST", help="new folder for the packed files")
    pack.add_argument(
        "--image-size", type=int, metavar="N", help="decode the images and store them as N x N pixels"
    )
    pack.add_argument("--channels", type=int, choices=(1, 3), help="channels of decoded images (default: 3)")
    pack.add_argument(
        "--on-bad-sample",
        choices=("error", "skip"),
        default="error",
        help="if an image cannot be read: stop with an error, or leave its entry empty (default: error)",
    )


def run(args: argparse.Namespace) -> int:
    """Runs one of the actions."""
    actions = {"list": _list, "look": _look, "fetch": _fetch, "check": _check, "pack": _pack}
    return actions[args.action](args)


def _add_data_dir(parser: argparse.ArgumentParser, *, help_text: str) -> None:
    parser.add_argument("--data-dir", "--dataset-path", metavar="DIR", help=help_text)


def _add_table_options(parser: argparse.ArgumentParser) -> None:
    for field in TABLE_FIELDS:
        description = Recipe.model_fields[field].description
        parser.add_argument(option_name(field), metavar="NAME", help=description)


def _table_options(args: argparse.Namespace, *, dataset: str | None) -> dict[str, str]:
    """The options that name a table and its columns; refuses them for other data sets."""
    given = {field: getattr(args, field) for field in TABLE_FIELDS if getattr(args, field) is not None}
    if given and dataset not in (None, "image-table"):
        field = next(iter(given))
        raise BadInputError(
            f"{option_name(field)} {given[field]} is for image-table, and this is {dataset}; leave it out."
        )
    return given


def _list(args: argparse.Namespace) -> int:
    infos = [dataset_info(name) for name in dataset_names()]
    if args.json:
        _print_json([_as_json(info) for info in infos])
        return 0
    titles = ("data set", "task", "training", "validation", "image", "classes", "files", "origin", "licence")
    _print_table(titles, [_row(info) for info in infos])
    return 0


def _row(info: DatasetInfo) -> tuple[str, ...]:
    is_known = info.is_sized
    return (
        info.name,
        info.task,
        str(info.train_samples) if is_known else "-",
        str(info.validation_samples) if is_known else "-",
        f"{info.channels}x{info.height}x{info.width}" if is_known else "-",
        str(info.num_classes) if is_known else "-",
        "--data-dir" if info.needs_files else "none",
        info.origin,
        info.licence,
    )


def _as_json(info: DatasetInfo) -> dict[str, Any]:
    values = {key: value for key, value in asdict(info).items() if key != "class_names"}
    return values if info.is_sized else {key: value for key, value in values.items() if value not in (0, ())}


def _look(args: argparse.Namespace) -> int:
    from drivetrain.data.finding.find import find_data

    options = _table_options(args, dataset=args.dataset)
    found = find_data(Path(args.directory), dataset=args.dataset, options=options)
    picture = Path(args.output or f"{Path(args.directory).resolve().name}-look.png")
    check_picture(picture)
    from drivetrain.auto.look import look_at

    with _progress_shown():
        measured, image = look_at(found, title=found.sentence)
    write_atomically(picture, image)
    if args.json:
        _print_json({"found": found.sentence, "left_out": found.left_out, **measured.as_json()})
    else:
        for line in (found.sentence, *found.left_out):
            _say(line)
        from drivetrain.cli.listing.fingerprint_text import fingerprint_lines

        for line in fingerprint_lines(measured):
            _say(line)
        _say(f"picture: {picture}")
    return 0


def check_picture(path: Path) -> None:
    """Refuses a picture that could not be written."""
    if path.suffix.lower() != ".png":
        raise BadInputError(f"--output {path} is not a PNG file; --output {path.stem or 'look'}.png works.")
    if not path.parent.is_dir():
        raise BadInputError(f"--output {path}: {path.parent} is not a folder; --output look.png works.")


def _fetch(args: argparse.Namespace) -> int:
    from drivetrain.data.commands.fetch import fetch_dataset
    from drivetrain.data.commands.fetch_table import remote_dataset

    remote = remote_dataset(args.name)
    if args.data_dir is None:
        raise BadInputError(f"data fetch {args.name} needs --data-dir DIR, the folder to download to.")
    info = dataset_info(args.name)
    _say(f"{info.name}: {info.origin}\nlicence: {info.licence}")
    from drivetrain.console.reporter import Reporter

    with Reporter(to_stderr=True) as reporter:
        shown = _ShownDownloads(reporter)
        with reporter.showing(f"fetching {info.name}"):
            fetch_dataset(remote, Path(args.data_dir), mirror=args.mirror, say=shown.say, on_bytes=shown.show)
    return 0


class _ShownDownloads:
    """Shows the progress of a download, file by file, in megabytes."""

    def __init__(self, reporter: "Reporter") -> None:
        self._reporter = reporter
        self._file: str | None = None

    def show(self, file: "RemoteFile", there: int) -> None:
        """Shows that `there` bytes of a file have arrived."""
        if file.name != self._file:
            self._end()
            self._reporter.start_progress(file.name, total=_megabytes(file.bytes))
            self._file = file.name
        if self._reporter.progress_due():
            self._reporter.progress(_megabytes(there), "MB")

    def say(self, text: str) -> None:
        """Prints a message about a finished file."""
        self._end()
        self._reporter.say(text)

    def _end(self) -> None:
        if self._file is not None:
            self._reporter.stop_progress()
            self._file = None


def _megabytes(count: int) -> int:
    return -(-count // 10**6)


def _check(args: argparse.Namespace) -> int:
    from drivetrain.data.commands.check_files import check_dataset
    from drivetrain.data.label_tables.rows import TableRequest

    table = TableRequest(table=args.label_table, file_column=args.file_column, label_column=args.label_column)
    _table_options(args, dataset=args.name)
    with _progress_shown():
        checked = check_dataset(args.name, data_dir=args.data_dir, table=table)
    if args.json:
        _print_json({key: value for key, value in asdict(checked).items() if value != {}})
    else:
        _print_checked(checked, args.data_dir)
    return 0 if checked.is_readable else RunFailedError.exit_status


def _print_checked(checked: "CheckedDataset", data_dir: str | None) -> None:
    place = f" in {data_dir}" if data_dir else ""
    test = f", {checked.test} test samples" if checked.test else ""
    _say(
        f"{checked.name}{place}: {checked.train} training and {checked.validation} validation samples{test}, "
        f"{checked.classes} classes"
    )
    if checked.image_sizes:
        sizes = [f"{count} of {size}" for size, count in checked.image_sizes.items()]
        rest = f" and {len(sizes) - _MOST_SIZES} other sizes" if len(sizes) > _MOST_SIZES else ""
        _say(f"images: {', '.join(sizes[:_MOST_SIZES])}{rest}")
        shares = [f"{name} {share:.2%}" for name, share in checked.class_shares.items()]
        _say(f"pixels: {', '.join(shares)}")
    for warning in checked.warnings:
        sys.stderr.write(f"drivetrain data: warning: {warning}\n")
    for bad in checked.bad_samples[:_MOST_NAMED]:
        sys.stderr.write(f"drivetrain data: cannot be read: {bad.name} ({bad.reason})\n")
    if len(checked.bad_samples) > _MOST_NAMED:
        sys.stderr.write(f"drivetrain data: and {len(checked.bad_samples) - _MOST_NAMED} more\n")
    if checked.is_readable and not checked.warnings:
        _say("All files can be read and all counts are as expected.")


def _pack(args: argparse.Namespace) -> int:
    from drivetrain.data.commands.write_pack import PackRequest, write_pack

    if args.image_size is not None and args.image_size < 1:
        raise BadInputError(f"--image-size {args.image_size} must be at least 1; --image-size 224 works.")
    if args.channels is not None and args.image_size is None:
        raise BadInputError(
            f"--channels {args.channels} has no effect without --image-size, as the images are stored "
            "unchanged; add --image-size 224."
        )
    request = PackRequest(
        image_size=args.image_size, channels=args.channels or 3, skip_bad=args.on_bad_sample == "skip"
    )
    with _progress_shown():
        result = write_pack(args.source, args.destination, request=request)
    for warning in result.warnings:
        sys.stderr.write(f"drivetrain data: warning: {warning}\n")
    for bad in result.bad_samples:
        sys.stderr.write(f"drivetrain data: left out: {bad.name} ({bad.reason})\n")
    counts = " and ".join(f"{count} {split}" for split, count in result.samples.items())
    _say(f"{args.destination}: {counts} samples, {result.stored_bytes} bytes")
    return 0


@contextmanager
def _progress_shown() -> Iterator[None]:
    """Shows progress on stderr, so that stdout contains only the result."""
    from drivetrain.console.reporter import Reporter
    from drivetrain.core.progress import showing_progress

    with Reporter(to_stderr=True) as reporter, showing_progress(reporter):
        yield


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _print_json(content: object) -> None:
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
