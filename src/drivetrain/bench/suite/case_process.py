"""Measures one case in a process of its own, so that a crash, a hang or a lack of memory costs one row."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from drivetrain.bench.suite.folder import Outcome

__all__ = ["measure_case", "why_failed"]

# The case runs the code of this process, wherever that was imported from. A killed suite must not leave its
# case behind, which would disturb the next measurement.
_SOURCE = Path(__file__).resolve().parents[3]
_CHILD = """\
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
from drivetrain.ranks.parent_watch import watch_parent
watch_parent(int(sys.argv.pop(1)))
runpy.run_module("drivetrain", run_name="__main__", alter_sys=True)
"""
_ERROR = re.compile(r"^drivetrain[\w ]*: error: (.*)")
_NO_MEMORY = re.compile(
    r"out of memory|OutOfMemory|can't allocate memory|not enough memory|MemoryError", re.I
)
_LONGEST_WHY = 300


def measure_case(arguments: Sequence[str], *, output: Path, log: Path, most_s: float) -> Outcome:
    """Runs `drivetrain ARGUMENTS --output OUTPUT`; whatever happens to it is told by the outcome."""
    command = [
        sys.executable,
        "-c",
        _CHILD,
        str(_SOURCE),
        str(os.getpid()),
        *arguments,
        "--output",
        str(output),
    ]
    began_s = time.monotonic()
    with log.open("w") as file:
        # The case leads a process group, so that its compiler and its ranks end with it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
        try:
            status: int | None = process.wait(timeout=most_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    seconds = time.monotonic() - began_s
    if status is None:
        why = f"it took longer than --time-limit {most_s:g} s"
        return Outcome(status="timed out", why=why, seconds=seconds)
    if status == 0 and output.is_file():
        return Outcome(status="measured", seconds=seconds)
    kind, why = why_failed(status, log.read_text(errors="replace"))
    return Outcome(status=kind, why=why, seconds=seconds)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kills what is left of a case's processes."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def why_failed(status: int, printed: str) -> tuple[str, str]:
    """The status of a failed case and its reason, from its exit status and what it printed."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    errors = [found[1] for line in lines if (found := _ERROR.match(line))]
    why = (errors[-1] if errors else last)[:_LONGEST_WHY]
    if any(_NO_MEMORY.search(line) for line in lines[-5:]):
        return "does not fit", why
    if status >= 0:
        return "failed", why
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    hint = ", which is what Linux sends when memory runs out" if name == "SIGKILL" else ""
    return "crashed", f"it was ended by {name}{hint}; the last line that it printed: {why}"
