"""All that the doctor looks at, in the order it is read."""

from pathlib import Path

from drivetrain.doctor.accelerators import check_accelerators
from drivetrain.doctor.finding import Finding
from drivetrain.doctor.half import check_half_types, check_processor
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


def examine(folder: Path) -> list[Finding]:
    """The findings about this machine, for runs in `folder`; without torch the rest cannot be asked."""
    torch = check_torch()
    has_torch = torch.status != "problem"
    return [
        check_python(),
        torch,
        check_processor(),
        check_cores(),
        check_load(),
        check_memory(),
        check_disk(folder),
        check_shared_memory(),
        check_open_files(),
        *(check_half_types() if has_torch else []),
        *(check_accelerators() if has_torch else []),
        *([check_ranks()] if has_torch else []),
        check_compiler(),
        *check_optional_packages(),
    ]


def is_fit(findings: list[Finding]) -> bool:
    """Whether a training would run."""
    return all(finding.status != "problem" for finding in findings)


def is_busy(findings: list[Finding]) -> bool:
    """Whether a training would have to share the cores with what runs already."""
    return any(finding.topic == LOAD and finding.status != "ok" for finding in findings)
