"""Makes 16-bit products safe on a CPU.

Some virtual machines advertise matrix units (AMX) and forbid them: products in bfloat16 then end the process
by an illegal instruction. Where a child process dies of that, oneDNN is held to older instructions before its
first use here; processes started from here inherit it.
"""

import faulthandler
import os
import signal
import sys
import time
import warnings
from dataclasses import dataclass

from drivetrain.core.errors import BadInputError
from drivetrain.devices.half_probe import HALF_TYPES, ISA_VARIABLE, Verdict, probe_half_types

__all__ = ["SAFE_ISA", "HalfSupport", "chosen_isa", "half_support", "make_half_safe", "usable_half_names"]

# The newest instructions for bfloat16 that use no matrix units.
SAFE_ISA = "AVX512_CORE_BF16"

_OLD_ISA_VARIABLE = "DNNL_MAX_CPU_ISA"
_CHECK_TIMEOUT_S = 60.0
_LOOK_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfSupport:
    """How products in a 16-bit type run: as the environment is, and held to SAFE_ISA where that differs."""

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
    """What this processor makes of "bfloat16" or "float16"; asked in child processes, which may die."""
    chosen = chosen_isa()
    as_is = probe_half_types(chosen)[kind]
    if as_is != Verdict.DIES or chosen is not None:
        return HalfSupport(kind=kind, as_is=as_is)
    return HalfSupport(kind=kind, as_is=as_is, held=probe_half_types(SAFE_ISA)[kind])


def usable_half_names() -> tuple[str, ...]:
    """The 16-bit types that `make_half_safe` can make safe here."""
    return tuple(kind for kind in HALF_TYPES if half_support(kind).is_usable)


def make_half_safe(kind: str) -> None:
    """Sees to it that products in a usable type do not end this process; call it before the first one."""
    if not half_support(kind).must_be_held:
        return
    os.environ[ISA_VARIABLE] = SAFE_ISA
    if not _survives_here(kind):
        del os.environ[ISA_VARIABLE]
        raise BadInputError(
            f"{kind} products would end this process, in which others have run already; start it with "
            f"{ISA_VARIABLE}={SAFE_ISA} in its environment, or use --precision 32.32."
        )


def chosen_isa() -> str | None:
    """The instructions the environment holds oneDNN to."""
    return os.environ.get(ISA_VARIABLE) or os.environ.get(_OLD_ISA_VARIABLE) or None


def _survives_here(kind: str) -> bool:
    """Whether the variable came in time, which only a copy of this very process can tell."""
    if "torch" not in sys.modules:
        return True
    if not hasattr(os, "fork"):
        return False
    with warnings.catch_warnings():
        # Of threads that may hold locks: the copy takes none of theirs, and has a time limit.
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
        # The threads of the parent do not exist here, and whoever gives them work waits for ever.
        torch.set_num_threads(1)
        compute_products(getattr(torch, kind))
        os._exit(0)
    finally:
        os._exit(1)


def _wait_for(child: int) -> int | None:
    """How the child ended; None where it had to be ended."""
    deadline_s = time.monotonic() + _CHECK_TIMEOUT_S
    while time.monotonic() < deadline_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(_LOOK_S)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
