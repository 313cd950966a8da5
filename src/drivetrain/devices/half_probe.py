"""Asks a child process which 16-bit types this processor computes in, and remembers the answer.

An answer holds until the machine is started again, since a virtual machine may come back on another host.
"""

import hashlib
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from drivetrain.core.cache_folder import cache_folder, keep_answer, read_answer
from drivetrain.devices.processor import boot_id, read_processor

__all__ = ["HALF_TYPES", "ISA_VARIABLE", "Verdict", "probe_half_types"]

HALF_TYPES = ("bfloat16", "float16")
# oneDNN reads it at its first use in a process.
ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"

_PROGRAM = Path(__file__).with_name("half_products.py")
# The child imports torch, which a busy machine takes minutes for.
_TIMEOUT_S = 600.0
_WINDOWS_ILLEGAL_INSTRUCTION = 0xC000001D
_DEATHS = (-signal.SIGILL, -signal.SIGSEGV, _WINDOWS_ILLEGAL_INSTRUCTION)


class Verdict(StrEnum):
    """What became of products in a 16-bit type."""

    WORKS = "works"
    REFUSED = "refused"
    DIES = "dies"
    UNKNOWN = "unknown"


Verdicts = Mapping[str, Verdict]


@cache
def probe_half_types(isa: str | None = None) -> Verdicts:
    """The verdict on each type in processes that oneDNN is held to `isa` in; seconds, or a file's reading."""
    marks = _marks(isa)
    verdicts = _recall(marks)
    if verdicts is None:
        verdicts = _ask(isa)
        if Verdict.UNKNOWN not in verdicts.values():
            _remember(marks, verdicts)
    return verdicts


def _ask(isa: str | None) -> dict[str, Verdict]:
    """One process serves all types, unless it dies of one."""
    verdicts: dict[str, Verdict] = {}
    while left := [kind for kind in HALF_TYPES if kind not in verdicts]:
        told, ending = _run_program(left, isa)
        verdicts |= told
        missing = [kind for kind in left if kind not in told]
        if missing:
            verdicts[missing[0]] = ending
    return verdicts


def _run_program(kinds: list[str], isa: str | None) -> tuple[dict[str, Verdict], Verdict]:
    """What the program told, and what its end says about the first type it did not tell of."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    if isa is not None:
        variables[ISA_VARIABLE] = isa
    command = [sys.executable, "-P", str(_PROGRAM), *kinds]
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}, Verdict.UNKNOWN
    lines = (line.split() for line in done.stdout.splitlines())
    told = {line[0]: Verdict(line[1]) for line in lines if len(line) == 2 and line[0] in kinds}
    return told, Verdict.DIES if done.returncode in _DEATHS else Verdict.UNKNOWN


def _marks(isa: str | None) -> dict[str, str]:
    """All that an answer may depend on."""
    processor = read_processor()
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        torch_version = ""
    return {
        "processor": processor.name,
        "microcode": processor.microcode,
        "features": hashlib.sha256(" ".join(sorted(processor.features)).encode()).hexdigest(),
        "kernel": platform.release(),
        "boot": boot_id(),
        "torch": torch_version,
        "program": hashlib.sha256(_PROGRAM.read_bytes()).hexdigest(),
        "isa": isa or "",
    }


def _file_of(marks: Mapping[str, str]) -> Path | None:
    folder = cache_folder()
    # Not the boot: the answer of the last one is overwritten.
    address = "\n".join(value for name, value in marks.items() if name != "boot")
    digest = hashlib.sha256(address.encode()).hexdigest()[:16]
    return None if folder is None else folder / f"cpu-half-{digest}.json"


def _recall(marks: Mapping[str, str]) -> dict[str, Verdict] | None:
    try:
        verdicts = read_answer(_file_of(marks), "verdicts", marks=marks)
        return {kind: Verdict(verdicts[kind]) for kind in HALF_TYPES}
    except (ValueError, KeyError, TypeError):
        return None


def _remember(marks: Mapping[str, str], verdicts: Verdicts) -> None:
    keep_answer(_file_of(marks), "verdicts", marks=marks, answer=verdicts)
