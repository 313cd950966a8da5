"""Makes 16-bit computation safe on a CPU: a child process tests which types the processor really supports.

Some virtual machines advertise matrix units (AMX) but forbid their use; bfloat16 products then kill the
process by an illegal instruction. If a child process dies of that, oneDNN is restricted to older instructions
before its first use in this process; child processes inherit the restriction.
"""

import faulthandler
import hashlib
import os
import platform
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from drivetrain.core.cache_folder import cache_folder, keep_answer, read_answer
from drivetrain.core.errors import BadInputError
from drivetrain.devices.processor import boot_id, read_processor
from drivetrain.recipe.schema import Recipe

__all__ = [
    "HALF_NAMES",
    "ISA_VARIABLE",
    "SAFE_ISA",
    "HalfSupport",
    "Verdict",
    "chosen_isa",
    "half_support",
    "make_half_safe",
    "prepare_half_precision",
    "probe_half_types",
    "usable_half_names",
]

HALF_NAMES = ("bfloat16", "float16")
# oneDNN reads this variable only at its first use in a process.
ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"
_PROGRAM = Path(__file__).with_name("half_products.py")
# The child process imports torch, which takes minutes on a busy machine.
_TIMEOUT_S = 600.0
_WINDOWS_ILLEGAL_INSTRUCTION = 0xC000001D
_DEATHS = (-signal.SIGILL, -signal.SIGSEGV, _WINDOWS_ILLEGAL_INSTRUCTION)
# The newest instruction set with bfloat16 that does not use matrix units.
SAFE_ISA = "AVX512_CORE_BF16"
_OLD_ISA_VARIABLE = "DNNL_MAX_CPU_ISA"
# Only a fork that hangs should take this long (see `_survives_here`).
_CHECK_TIMEOUT_S = 60.0
# os.waitpid has no timeout, so the child is polled; short, because the run waits for the answer.
_LOOK_S = 0.005


# Answers of child processes are cached until the machine restarts: a virtual machine may then run on another
# host.


class Verdict(StrEnum):
    """The result of a test computation in a 16-bit type."""

    WORKS = "works"
    REFUSED = "refused"
    DIES = "dies"
    UNKNOWN = "unknown"


Verdicts = Mapping[str, Verdict]


@cache
def probe_half_types(isa: str | None = None) -> Verdicts:
    """The verdict on each type with oneDNN restricted to `isa`; takes seconds unless it is cached."""
    marks = _marks(isa)
    verdicts = _recall(marks)
    if verdicts is None:
        verdicts = _ask(isa)
        if Verdict.UNKNOWN not in verdicts.values():
            _remember(marks, verdicts)
    return verdicts


def _ask(isa: str | None) -> dict[str, Verdict]:
    """Tests all types in one process, and the remaining ones in another if it dies."""
    verdicts: dict[str, Verdict] = {}
    while left := [kind for kind in HALF_NAMES if kind not in verdicts]:
        told, ending = _run_program(left, isa)
        verdicts |= told
        missing = [kind for kind in left if kind not in told]
        if missing:
            verdicts[missing[0]] = ending
    return verdicts


def _run_program(kinds: list[str], isa: str | None) -> tuple[dict[str, Verdict], Verdict]:
    """The verdicts that the program printed, and the verdict on the type at which it ended."""
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
    """Everything that an answer may depend on."""
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
    # Without the boot id, so that the answer of the last boot is overwritten and files do not pile up.
    address = "\n".join(value for name, value in marks.items() if name != "boot")
    digest = hashlib.sha256(address.encode()).hexdigest()[:16]
    return None if folder is None else folder / f"cpu-half-{digest}.json"


def _recall(marks: Mapping[str, str]) -> dict[str, Verdict] | None:
    try:
        verdicts = read_answer(_file_of(marks), "verdicts", marks=marks)
        return {kind: Verdict(verdicts[kind]) for kind in HALF_NAMES}
    except (ValueError, KeyError, TypeError):
        return None


def _remember(marks: Mapping[str, str], verdicts: Verdicts) -> None:
    keep_answer(_file_of(marks), "verdicts", marks=marks, answer=verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfSupport:
    """Whether a 16-bit type works: in the given environment, and restricted to SAFE_ISA if tested."""

    kind: str
    as_is: Verdict
    held: Verdict | None = None

    @property
    def is_usable(self) -> bool:
        return Verdict.WORKS in (self.as_is, self.held)

    @property
    def must_be_held(self) -> bool:
        return self.as_is != Verdict.WORKS and self.held == Verdict.WORKS


def half_support(kind: str) -> HalfSupport:
    """Tests "bfloat16" or "float16" on this processor in child processes, which may die."""
    chosen = chosen_isa()
    as_is = probe_half_types(chosen)[kind]
    if as_is != Verdict.DIES or chosen is not None:
        return HalfSupport(kind=kind, as_is=as_is)
    return HalfSupport(kind=kind, as_is=as_is, held=probe_half_types(SAFE_ISA)[kind])


def usable_half_names() -> tuple[str, ...]:
    """The 16-bit types that work on this machine after `make_half_safe`."""
    return tuple(kind for kind in HALF_NAMES if half_support(kind).is_usable)


def make_half_safe(kind: str) -> None:
    """Prevents products in a usable type from killing this process; call it before the first one."""
    if not half_support(kind).must_be_held:
        return
    os.environ[ISA_VARIABLE] = SAFE_ISA
    if not _survives_here(kind):
        del os.environ[ISA_VARIABLE]
        raise BadInputError(
            f"Computing in {kind} would crash this process, as oneDNN has already been used in it; start "
            f"it with {ISA_VARIABLE}={SAFE_ISA} in its environment, or use --precision 32.32."
        )


def chosen_isa() -> str | None:
    """The instruction set to which the environment restricts oneDNN, if any."""
    return os.environ.get(ISA_VARIABLE) or os.environ.get(_OLD_ISA_VARIABLE) or None


def _survives_here(kind: str) -> bool:
    """Whether the variable was set before oneDNN read it; only a fork of this process can tell."""
    if "torch" not in sys.modules:
        return True
    if not hasattr(os, "fork"):
        return False
    with warnings.catch_warnings():
        # Python warns of forking with threads that may hold locks. The child takes none of these locks, and
        # is killed after a timeout.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _compute_and_exit(kind)
    return _wait_for(child) == 0


def _compute_and_exit(kind: str) -> None:
    try:
        import torch

        from drivetrain.devices.half_products import compute_products, leave_no_core_file

        faulthandler.disable()
        leave_no_core_file()
        # The threads of the parent do not exist in a fork; giving work to its thread pool would hang forever.
        torch.set_num_threads(1)
        compute_products(getattr(torch, kind))
        os._exit(0)
    finally:
        os._exit(1)


def _wait_for(child: int) -> int | None:
    """The exit status of the child; None if it had to be killed."""
    deadline_s = time.monotonic() + _CHECK_TIMEOUT_S
    while time.monotonic() < deadline_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(_LOOK_S)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def prepare_half_precision(recipe: Recipe, *, device: str | None = None) -> None:
    """Makes half precision safe before anything is computed; `choose_precision` would be too late.

    By then data and plans may have used oneDNN already. It works for this process and those it starts;
    `device` replaces that of the recipe. A type that does not work at all is refused later, by
    `choose_precision`.
    """
    if not _asks_for_half(recipe) or not _is_cpu(device or recipe.device):
        return
    if recipe.half_type in usable_half_names():
        make_half_safe(recipe.half_type)


def _asks_for_half(recipe: Recipe) -> bool:
    of_stages = (str(option.get("precision", "")) for option in recipe.stage_options)
    return any(precision.startswith("16.") for precision in (recipe.precision, *of_stages))


def _is_cpu(device: str) -> bool:
    if device != "auto":
        return device.partition(":")[0] == "cpu"
    import torch

    return not torch.accelerator.is_available()
