"""`drivetrain doctor`: checks whether this machine is ready for training and prints the findings."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain.core.errors import DrivetrainError

if TYPE_CHECKING:
    from drivetrain.doctor.finding import Finding

_WIDTH_OF_A_PIPE = 160
_FIT = "This machine is ready for training."
_BUSY = "This machine is ready for training, but busy now."
_UNFIT = "Training cannot run on this machine until the problems are fixed."
_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--links",
        action="store_true",
        help="also measure the link between two ranks, which plan uses to predict times",
    )


def run(args: argparse.Namespace) -> int:
    """Examines the machine; the exit status is 1 if something would prevent training."""
    from drivetrain.console.reporter import Reporter
    from drivetrain.doctor.examine import examine, is_busy, is_fit

    with Reporter(to_stderr=True) as reporter:
        findings = examine(Path.cwd(), reporter=reporter, measures_links=args.links)
    fit, busy = is_fit(findings), is_busy(findings)
    if args.json:
        report = {"fit": fit, "busy": busy, "findings": [finding.as_json() for finding in findings]}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        _print_table(findings, verdict=_UNFIT if not fit else _BUSY if busy else _FIT)
    return 0 if fit else DrivetrainError.exit_status


def _print_table(findings: "list[Finding]", *, verdict: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_OF_A_PIPE)
    table = Table("topic", "", "what was found", box=None)
    for finding in findings:
        status = f"[{_STYLES[finding.status]}]{finding.status}[/]"
        table.add_row(finding.topic, status, _unmarked(finding.sentence))
    console.print(table)
    console.print(verdict, highlight=False)


def _unmarked(sentence: str) -> str:
    """Escapes brackets, which rich would otherwise read as markup."""
    from rich.markup import escape

    return escape(sentence)
