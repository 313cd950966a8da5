"""`drivetrain report RUN...`: one HTML page of a run, or of several runs compared."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_atomically
from drivetrain.store.directory import REPORT_NAME


def add_arguments(parser: ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="runs or cross-validations to show; several are compared"
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=f"file to write (default: {REPORT_NAME} in the run's directory; for several runs in the working "
        "directory)",
    )


def run(args: Namespace) -> int:
    """Writes the page and prints where it is."""
    from drivetrain.report.collect.pages import contents_of
    from drivetrain.report.page.render import render_page

    paths = [Path(path) for path in args.runs]
    output = _output(args.output, paths=paths)
    page = render_page(contents_of(paths))
    try:
        write_atomically(output, page.encode())
    except OSError as error:
        raise BadInputError(
            f"{output} cannot be written ({error.strerror}); --output /tmp/{REPORT_NAME} writes elsewhere."
        ) from error
    sys.stdout.write(f"{output}\n")
    return 0


def _output(named: str | None, *, paths: list[Path]) -> Path:
    """The file to write: the one that is named, in the directory of one run, or here."""
    if named is None:
        return paths[0] / REPORT_NAME if len(paths) == 1 else Path(REPORT_NAME)
    output = Path(named)
    if output.is_dir():
        raise BadInputError(
            f"--output {named} is a folder; name a file in it: --output {output / REPORT_NAME}."
        )
    if not output.parent.is_dir():
        raise BadInputError(
            f"--output {named}: the folder {output.parent} does not exist; create it, or leave --output out."
        )
    return output
