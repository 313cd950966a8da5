"""When `--compile auto` compiles, decided by clocks that a test holds in its hand."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drivetrain.run.compiling import compile_choice
from drivetrain.run.compiling import compile_choice as compile_gains
from drivetrain.run.compiling.compile_choice import (
    FEWEST_UPDATES,
    CompileChoice,
    Gain,
    decide,
    recall_gain,
    remember_gain,
)

MARKS = {"device": "a processor"}
MANY = 1000


@dataclass
class GivenTimes:
    """A program whose updates take what the test says."""

    plain_s: float = 1.0
    compiled_s: float = 0.5
    compiling_s: float = 30.0
    failure: str | None = None
    measured: list[str] = field(default_factory=list)

    def time_plain(self) -> float:
        self.measured.append("plain")
        return self.plain_s

    def time_compiled(self) -> tuple[float, float]:
        self.measured.append("compiled")
        return self.compiling_s, self.compiled_s


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compile_gains, "_known", {})


def choose(timer: GivenTimes, updates: int = MANY, **options: Any) -> CompileChoice:
    return decide(timer, updates_left=updates, marks=MARKS, least_s=150.0, **options)


def test_a_run_of_few_updates_measures_nothing() -> None:
    timer = GivenTimes(plain_s=100.0)
    choice = choose(timer, FEWEST_UPDATES - 1)
    assert (choice.is_on, timer.measured) == (False, [])
    assert choice.sentence == "compile off: 199 updates are too few to gain from it"


def test_a_run_of_short_updates_measures_them_and_does_not_compile() -> None:
    timer = GivenTimes(plain_s=0.1)
    choice = choose(timer)
    assert (choice.is_on, timer.measured) == (False, ["plain"])
    assert choice.sentence == "compile off: the training takes only about 100 s uncompiled"
    again = GivenTimes()
    assert not choose(again).is_on
    assert again.measured == []


def test_the_time_that_a_run_may_take_counts_too() -> None:
    timer = GivenTimes()
    assert not choose(timer, max_time_s=60.0).is_on
    assert choose(timer, max_time_s=160.0).is_on


def test_trainings_that_share_it_pay_together() -> None:
    alone = choose(GivenTimes(plain_s=0.1))
    assert not alone.is_on
    together = choose(GivenTimes(plain_s=0.1, compiled_s=0.05), trainings=5)
    assert together.is_on
    few = decide(
        GivenTimes(plain_s=0.01), updates_left=MANY, trainings=5, marks={"device": "another"}, least_s=150.0
    )
    assert few.sentence == "compile off: all 5 trainings take only about 50 s uncompiled"


def test_a_long_run_keeps_what_is_faster() -> None:
    choice = choose(GivenTimes())
    assert (choice.is_on, choice.compiling_s) == (True, 30.0)
    assert choice.sentence == (
        "compile on: an update takes 0.5 s compiled and 1 s uncompiled, and compiling takes 30 s "
        "(measured before the first update)"
    )
    assert recall_gain(MARKS) == Gain(plain_s=1.0, compiled_s=0.5, compiling_s=30.0)


@pytest.mark.parametrize("compiled_s", [0.96, 1.0, 2.0])
def test_what_is_hardly_faster_is_left(compiled_s: float) -> None:
    choice = choose(GivenTimes(compiled_s=compiled_s))
    assert not choice.is_on
    assert choice.compiling_s == 30.0
    assert not choose(GivenTimes()).is_on


def test_the_next_run_measures_nothing() -> None:
    choose(GivenTimes())
    timer = GivenTimes()
    choice = choose(timer)
    assert (choice.is_on, choice.compiling_s, timer.measured) == (True, 0.0, [])
    assert choice.reason.endswith("(measured by an earlier run)")


def test_what_is_saved_must_pay_for_compiling() -> None:
    remember_gain(MARKS, Gain(plain_s=1.0, compiled_s=0.9, compiling_s=30.0))
    assert not choose(GivenTimes(), 250).is_on
    assert choose(GivenTimes(), 350).is_on


@pytest.mark.parametrize(("updates", "is_on"), [(250, False), (350, True)])
def test_who_measured_decides_as_those_who_remember(updates: int, is_on: bool) -> None:
    measured = choose(GivenTimes(compiled_s=0.9), updates)
    remembered = choose(GivenTimes(), updates)
    assert measured.is_on == remembered.is_on == is_on


def test_a_compiler_that_fails_is_the_reason_and_is_asked_again_next_time() -> None:
    choice = choose(GivenTimes(failure="the model runs uncompiled"))
    assert choice.sentence == "compile off: the model runs uncompiled"
    assert choose(GivenTimes()).is_on


def test_an_earlier_choice_holds_for_the_processor_that_it_was_made_on() -> None:
    marks = {**MARKS, "code": "avx2"}
    stored = {"asked": "auto", "on": True, "reason": "it pays", "marks": marks}
    assert compile_choice._kept(stored, marks) is not None
    assert compile_choice._kept(stored, {**marks, "code": "avx512"}) is None
    of_an_older_version = {**stored, "marks": MARKS}
    assert compile_choice._kept(of_an_older_version, marks) is not None
    assert compile_choice._kept({"asked": "auto", "on": True, "reason": ""}, marks) is None


def test_an_earlier_choice_holds_on_every_layout() -> None:
    marks = {"device": "a", "model": "b", "micro_batch_size": 8, "accumulation": 1, "code": "avx2"}
    other = {**marks, "micro_batch_size": 2, "accumulation": 4, "captured": True}
    stored = {"asked": "auto", "on": True, "reason": "it pays", "marks": marks}
    kept = compile_choice._kept(stored, other)
    assert kept is not None
    assert (kept.is_on, kept.is_kept) == (True, True)
    assert compile_choice._kept(stored, {**other, "device": "c"}) is None
    for on, asked in ((True, "on"), (False, "off"), (False, "auto")):
        kept = compile_choice._kept({"asked": asked, "on": on, "reason": "", "marks": {}}, marks)
        assert kept is not None
        assert kept.is_on is on


def test_what_stands_in_the_way_is_not_a_choice() -> None:
    assert not CompileChoice(is_on=False, reason="several ranks").is_chosen
    assert CompileChoice(is_on=False, reason="asked for", asked="off").is_chosen
    assert CompileChoice(is_on=False, reason="too short", marks={"model": "unet"}).is_chosen
