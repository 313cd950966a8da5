"""`drivetrain report`: one HTML page of a run, of several runs compared, or of all runs while they go on."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_atomically
from drivetrain.report.live.address import DEFAULT_HOST, DEFAULT_PORT
from drivetrain.store.directory import DEFAULT_PARENT, REPORT_NAME


def add_arguments(parser: ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help="runs or cross-validations to show; several are compared"
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=f"file to write (default: {REPORT_NAME} in the run's directory; for several runs in the working "
        "directory)",
    )
    parser.add_argument(
        "--live",
        nargs="?",
        const=str(DEFAULT_PARENT),
        metavar="DIR",
        help=f"serve the pages of all runs in DIR while they go on, until Ctrl-C (DIR: {DEFAULT_PARENT})",
    )
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help=f"port of --live (default: {DEFAULT_PORT} or, if in use, a free one)",
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        help=f"address of --live; one that others can reach needs the token that is printed (default: "
        f"{DEFAULT_HOST})",
    )


def run(args: Namespace) -> int:
    """Writes the page and prints where it is, or serves all pages."""
    if args.live is not None:
        return _serve(args)
    for option, value in (("--port", args.port), ("--host", args.host)):
        if value is not None:
            raise BadInputError(f"{option} {value} has no effect without --live; --live serves all runs.")
    if not args.runs:
        raise BadInputError("RUN names no run; `drivetrain runs` lists the runs there are.")
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


def _serve(args: Namespace) -> int:
    """Serves the runs in a folder; prints the address to open."""
    from drivetrain.report.collect.pages import contents_of
    from drivetrain.report.live.serve import serve_live
    from drivetrain.report.page.render import render_page

    if args.runs:
        raise BadInputError(
            f"RUN {args.runs[0]} has no effect with --live, which serves every run in DIR; leave RUN out."
        )
    if args.output is not None:
        raise BadInputError(f"--output {args.output} has no effect with --live; leave --output out.")
    serve_live(
        Path(args.live),
        collect=lambda paths: contents_of(paths, live=True),
        render=lambda contents, client: render_page(contents, client=client),
        announce=_announce,
        host=DEFAULT_HOST if args.host is None else args.host,
        port=args.port,
    )
    return 0


def _announce(address: str) -> None:
    sys.stdout.write(f"{address}\nOpen this address in a browser; Ctrl-C ends the server.\n")
    sys.stdout.flush()


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
