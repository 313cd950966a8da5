"""The machinery of benchmarks/pipeline_bound.py: every pass of every stage sleeps, and nothing else does."""

import importlib
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from drivetrain.ranks.replica_group import ALONE

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MICRO_BATCHES, UPDATES = 8, 1


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("pipeline_bound")


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "grouped", "zero-bubble"])
def test_every_pass_sleeps_its_time(schedule: str, bound: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps = bound.Sleeps(forward_s=1.0, input_s=2.0, weight_s=3.0)
    slept: Counter[float] = Counter()
    monkeypatch.setattr(time, "sleep", lambda seconds: slept.update([seconds]))
    assemble = bound.assemble

    def assembled(*args: Any, **options: Any) -> Any:
        made = assemble(*args, **options)
        # The passes of copies, by which a user's model is got to know.
        slept.clear()
        return made

    monkeypatch.setattr(bound, "assemble", assembled)
    seconds = bound.time_updates(ALONE, schedule, MICRO_BATCHES, sleeps, UPDATES)
    assert len(seconds) == UPDATES
    passes = MICRO_BATCHES * bound.STAGES * (bound.WARM_UP + UPDATES)
    assert {length: slept[length] for length in (1.0, 2.0, 3.0)} == {1.0: passes, 2.0: passes, 3.0: passes}
