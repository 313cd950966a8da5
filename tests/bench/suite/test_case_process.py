"""A case in its own process: what its end is called, and why."""

from pathlib import Path

import pytest

from drivetrain.bench.suite.case_process import measure_case, why_failed

TRACEBACK = 'Traceback (most recent call last):\n  File "x.py"\n'


@pytest.mark.parametrize(
    ("status", "printed", "found"),
    [
        (
            2,
            "warning: x\ndrivetrain bench: error: --model x is not known.\n",
            ("failed", "--model x is not known."),
        ),
        (1, f"{TRACEBACK}RuntimeError: no\n\n", ("failed", "RuntimeError: no")),
        (
            1,
            f"{TRACEBACK}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n",
            ("does not fit", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        ),
        (0, "", ("failed", "it printed nothing")),
    ],
)
def test_the_reason_is_what_it_printed_last(status: int, printed: str, found: tuple[str, str]) -> None:
    assert why_failed(status, printed) == found


def test_a_signal_has_its_name() -> None:
    kind, why = why_failed(-11, "warming up")
    assert (kind, why) == ("crashed", "it was ended by SIGSEGV; the last line that it printed: warming up")
    assert "memory runs out" in why_failed(-9, "")[1]


def test_a_case_that_fails_says_why(tmp_path: Path) -> None:
    found = measure_case(["benhc"], output=tmp_path / "a.json", log=tmp_path / "log", most_s=100)
    assert found.status == "failed"
    assert found.why.startswith("benhc is not a command. Did you mean bench?")


def test_a_case_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    found = measure_case(["--version"], output=tmp_path / "a.json", log=tmp_path / "log", most_s=0.0)
    assert found.status == "timed out"
    assert found.why == "it took longer than --time-limit 0 s"
