"""Runs all checks of the doctor, in the order in which the table shows them."""

from collections.abc import Callable
from pathlib import Path

from drivetrain.console.reporter import Reporter
from drivetrain.doctor.accelerators import check_accelerators
from drivetrain.doctor.finding import Finding
from drivetrain.doctor.half import check_half_types, check_processor
from drivetrain.doctor.links import check_links
from drivetrain.doctor.machine import (
    LOAD,
    check_cores,
    check_disk,
    check_load,
    check_memory,
    check_open_files,
    check_shared_memory,
)
from drivetrain.doctor.ranks import check_ranks
from drivetrain.doctor.versions import check_compiler, check_optional_packages, check_python, check_torch

__all__ = ["examine", "is_busy", "is_fit"]


def examine(folder: Path, *, reporter: Reporter, measures_links: bool = False) -> list[Finding]:
    """All findings about this machine, for runs in `folder`; skips the checks that need torch without it."""
    with reporter.showing("looking for torch"):
        torch = check_torch()
    has_torch = torch.status != "problem"
    checks = _checks(folder, torch, has_torch=has_torch)
    if has_torch and measures_links:
        checks |= {"links": check_links}
    findings: list[Finding] = []
    with reporter.showing("examining this machine", total=len(checks)):
        for done, (what, check) in enumerate(checks.items()):
            if reporter.progress_due():
                reporter.progress(done, what)
            findings += check()
    return findings


def _checks(folder: Path, torch: Finding, *, has_torch: bool) -> dict[str, Callable[[], list[Finding]]]:
    """The checks, by the name that the progress bar shows."""
    with_torch: dict[str, Callable[[], list[Finding]]] = {
        "16-bit products": check_half_types,
        "accelerators": check_accelerators,
        "two processes": lambda: [check_ranks()],
    }
    return {
        "Python and torch": lambda: [check_python(), torch],
        "processor": lambda: [check_processor(), check_cores(), check_load()],
        "memory and disk": lambda: [
            check_memory(),
            check_disk(folder),
            check_shared_memory(),
            check_open_files(),
        ],
        **(with_torch if has_torch else {}),
        "compiler": lambda: [check_compiler()],
        "packages": check_optional_packages,
    }


def is_fit(findings: list[Finding]) -> bool:
    """Whether training would run here."""
    return all(finding.status != "problem" for finding in findings)


def is_busy(findings: list[Finding]) -> bool:
    """Whether other programs use so much of the CPU that a training would be slowed down."""
    return any(finding.topic == LOAD and finding.status != "ok" for finding in findings)
