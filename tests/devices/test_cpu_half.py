"""Half precision on a CPU never ends a process: held to older instructions in time, or refused."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.devices import cpu_half, half_products
from drivetrain.devices.cpu_half import (
    ISA_VARIABLE,
    SAFE_ISA,
    HalfSupport,
    Verdict,
    half_support,
    make_half_safe,
    usable_half_names,
)

Answers = dict[str | None, dict[str, Verdict]]
SOUND = {"bfloat16": Verdict.WORKS, "float16": Verdict.WORKS}
TRAPPED = {"bfloat16": Verdict.DIES, "float16": Verdict.WORKS}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What the child process finds under each variable; asking for more fails."""
    found: Answers = {}
    monkeypatch.setattr(cpu_half, "probe_half_types", found.__getitem__)
    # Set first, so that what a test sets itself is taken back.
    monkeypatch.setenv(ISA_VARIABLE, "")
    monkeypatch.delenv(ISA_VARIABLE)
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    return found


def _die_unless_held(kind: torch.dtype) -> None:
    if os.environ.get(ISA_VARIABLE) != SAFE_ISA:
        os.kill(os.getpid(), signal.SIGILL)


def test_nothing_is_done_where_nothing_is_wrong(answers: Answers) -> None:
    answers[None] = SOUND
    assert half_support("bfloat16") == HalfSupport(kind="bfloat16", as_is=Verdict.WORKS)
    assert usable_half_names() == ("bfloat16", "float16")
    make_half_safe("bfloat16")
    assert ISA_VARIABLE not in os.environ


def test_a_forbidden_unit_is_avoided(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    answers |= {None: TRAPPED, SAFE_ISA: SOUND}
    monkeypatch.setattr(half_products, "compute_products", _die_unless_held)
    assert usable_half_names() == ("bfloat16", "float16")
    assert half_support("bfloat16").must_be_held
    make_half_safe("float16")
    assert ISA_VARIABLE not in os.environ, "float16 works as it is"
    make_half_safe("bfloat16")
    assert os.environ[ISA_VARIABLE] == SAFE_ISA
    make_half_safe("bfloat16")
    assert half_support("bfloat16") == HalfSupport(kind="bfloat16", as_is=Verdict.WORKS)


def test_a_variable_that_comes_too_late_is_refused(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A copy of this process dies of the product, whatever the environment says; this one does not."""
    answers |= {None: TRAPPED, SAFE_ISA: SOUND}
    monkeypatch.setattr(half_products, "compute_products", lambda kind: os.kill(os.getpid(), signal.SIGILL))
    with pytest.raises(BadInputError, match=f"{ISA_VARIABLE}={SAFE_ISA} .*--precision 32.32"):
        make_half_safe("bfloat16")
    assert ISA_VARIABLE not in os.environ
    assert capfd.readouterr() == ("", "")


def test_a_copy_that_hangs_is_ended(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    answers |= {None: TRAPPED, SAFE_ISA: SOUND}
    monkeypatch.setattr(half_products, "compute_products", lambda kind: signal.pause())
    monkeypatch.setattr(cpu_half, "_CHECK_TIMEOUT_S", 0.2)
    with pytest.raises(BadInputError, match="bfloat16"):
        make_half_safe("bfloat16")


@pytest.mark.parametrize("name", [ISA_VARIABLE, "DNNL_MAX_CPU_ISA"])
def test_what_the_user_chose_stays(name: str, answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    answers["AVX512_CORE_AMX"] = TRAPPED
    monkeypatch.setenv(name, "AVX512_CORE_AMX")
    assert usable_half_names() == ("float16",)
    assert os.environ[name] == "AVX512_CORE_AMX"


@pytest.mark.parametrize("verdict", [Verdict.REFUSED, Verdict.UNKNOWN])
def test_what_does_not_run_is_not_usable(verdict: Verdict, answers: Answers) -> None:
    answers[None] = {"bfloat16": verdict, "float16": verdict}
    assert usable_half_names() == ()


def test_older_instructions_may_not_help(answers: Answers) -> None:
    answers |= {None: TRAPPED, SAFE_ISA: TRAPPED}
    assert usable_half_names() == ("float16",)


REAL = """\
import torch
from torch.nn import functional
functional.conv2d(torch.ones(8, 16, 32, 32), torch.ones(16, 16, 3, 3))
from drivetrain.devices import cpu_half
assert cpu_half._survives_here("float32")
"""


def test_a_copy_computes_after_this_process_has_used_threads() -> None:
    done = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
