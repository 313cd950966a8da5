"""What is tried on every module of the corpus, by name: each check returns a difference in words, or ''."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from unittest import mock

from drivetrain.program import capture_choice
from drivetrain.ranks.pool import RankPool
from tests.corpus.layouts import comparable, layout_of, not_comparable
from tests.corpus.modules import CASES
from tests.corpus.registry import Case
from tests.corpus.runs import (
    Trained,
    different,
    differing_arrays,
    differing_bits,
    gradients_of_torch,
    train_case,
    train_on_rank,
    warnings_of,
)
from tests.program.tape import Tape

__all__ = ["difference", "reference", "train_captured", "tried"]

# Two updates before the recording, then two that are replayed.
_CAPTURED_UPDATES = 4
_LOSS_ROUNDING = 1e-6
_HALF = "16 bits, "


def tried(case: Case) -> Iterator[str]:
    """The names of all checks of a module: its layouts, and the others."""
    yield from comparable(case)
    if case.scope == "call":
        yield from not_comparable(case)
    yield from (name for name in _CHECKS if name != "torch" or not case.draws)
    if case.twin is not None:
        yield "twin"
    if case.dtype == "float32":
        yield from (f"{_HALF}{layout}" for layout in ("2 stages", "4 stages", "recomputation"))


def difference(case: Case, what: str, *, pool: RankPool | None = None) -> str:
    """What a module does otherwise than it should, in words; a refusal raises."""
    if what in _CHECKS:
        return _CHECKS[what](case)
    if what == "twin":
        return different(case, train_case(case, make=case.twin), reference(case.name))
    if what.startswith(_HALF):
        return _in_half(case, what.removeprefix(_HALF))
    if what in not_comparable(case):
        return _unannounced(case, what)
    expected, layout = reference(case.name), layout_of(case, what)
    if layout.ranks == 1:
        return different(case, expected, train_case(case, layout, starts=expected.states))
    assert pool is not None, "needs ranks"
    parts = pool.run(train_on_rank, case.name, layout, expected.states, ranks=layout.ranks)
    return different(case, expected, parts[0])


@cache
def reference(name: str, *, updates: int = 2) -> Trained:
    """One process in one piece."""
    return train_case(CASES[name], updates=updates)


def _unannounced(case: Case, layout: str) -> str:
    """Whether a run says nothing about a state that depends on its layout."""
    said = warnings_of(case, layout_of(case, layout))
    options = ("--replicas", "--gradient-accumulation-count")
    if any("depend" in text and any(option in text for option in options) for text in said):
        return ""
    return f"no warning says that the model's own state depends on the layout: {said}"


def _against_torch(case: Case) -> str:
    """By a loop of a few lines over the same samples."""
    found = reference(case.name)
    gradients, loss = gradients_of_torch(case)
    most = 1e-10 if case.dtype == "float64" else 1e-5
    if abs(loss - float(found.losses[0])) > _LOSS_ROUNDING:
        return f"loss by {abs(loss - float(found.losses[0])):.1e}"
    return differing_arrays(gradients, found.gradients[0], most=most)


def _in_half(case: Case, layout: str) -> str:
    """A layout of the same micro-batches rounds alike, operation by operation."""
    options: dict[str, Any] = {"precision": "16.32", "half_type": "bfloat16"}
    expected = train_case(case, **options)
    found = train_case(case, layout_of(case, layout), starts=expected.states, **options)
    return differing_bits(expected, found)


def _again(case: Case) -> str:
    return differing_bits(reference(case.name), train_case(case))


def _given(case: Case) -> str:
    """As a module that is handed over in Python, and copied."""
    return differing_bits(reference(case.name), train_case(case, given=True))


def _continued(case: Case) -> str:
    """From the state after the first update, in a new program."""
    whole = reference(case.name)
    rest = Trained(gradients=whole.gradients[1:], states=whole.states[1:], losses=whole.losses[1:])
    return differing_bits(rest, train_case(case, starts=whole.states, first=1))


def train_captured(case: Case) -> Trained:
    """Trains a module whose updates the stand-in for CUDA graphs records and replays."""
    with (
        mock.patch.object(capture_choice, "_obstacle", return_value=""),
        mock.patch.object(capture_choice, "CudaRecorder", Tape),
    ):
        return train_case(case, updates=_CAPTURED_UPDATES)


def _captured(case: Case) -> str:
    expected, found = reference(case.name, updates=_CAPTURED_UPDATES), train_captured(case)
    if found.capture != "captured" and ": " not in found.capture:
        return f"the status {found.capture!r} gives no reason"
    return differing_bits(expected, found)


_CHECKS: dict[str, Callable[[Case], str]] = {
    "torch": _against_torch,
    "again": _again,
    "given": _given,
    "continued": _continued,
    "captured": _captured,
}
