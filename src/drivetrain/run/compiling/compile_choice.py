"""Whether a run uses torch.compile: `--compile on` and `off` decide; `auto` measures what saves time.

`auto` times some updates compiled and uncompiled, and remembers the answer in the user's cache folder.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from drivetrain.console.reporter import Reporter
from drivetrain.core.cache_folder import cache_folder, keep_answer, read_answer
from drivetrain.devices.code_folder import code_key
from drivetrain.layers.draws.facts import DRAWS_OBSTACLE
from drivetrain.program.capture_choice import pieces_of
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.fields import fields_with
from drivetrain.recipe.notes import Fact
from drivetrain.recipe.schema import Recipe
from drivetrain.run.compiling.compile_timer import MeasuringStoppedError, ProgramTimer

__all__ = ["CompileChoice", "Gain", "Timer", "choose_compile", "decide", "recall_gain", "remember_gain"]

Marks = Mapping[str, Any]
# Shorter runs are not even timed: the measurement itself runs updates.
FEWEST_UPDATES = 200
# Compiling takes about a minute (docs/performance.md) and saves only a part of the remaining time, so
# shorter trainings cannot win it back.
LEAST_CPU_S, LEAST_ACCELERATOR_S = 150.0, 60.0
# Key under which `_marks` keeps processor, compiler and threads: compiled code is specific to them.
_CODE = "code"
# Keys for what a layout changes: timings depend on it, but a continued run keeps its choice, as bits do not.
_OF_LAYOUT = frozenset({"micro_batch_size", "accumulation", "feed", "captured"})
# A smaller gain may be the noise between two timings of the same code.
_LEAST_SHARE_WON = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Measured seconds of an uncompiled update, a compiled one (None: not measured) and of compiling."""

    plain_s: float
    compiled_s: float | None = None
    compiling_s: float = 0.0


# Besides the cache folder: for users without a home directory, and for folds trained by one process.
_known: dict[str, Gain] = {}


def recall_gain(marks: Marks) -> Gain | None:
    """The timings measured earlier for the same work on the same device; None if there are none."""
    digest = _digest(marks)
    if digest in _known:
        return _known[digest]
    answer = read_answer(_path(digest), "gain", marks=marks)
    try:
        return Gain(**answer) if answer else None
    except TypeError:
        return None


def remember_gain(marks: Marks, gain: Gain) -> None:
    """Keeps timings for this process and, in the cache folder, for later ones."""
    digest = _digest(marks)
    _known[digest] = gain
    keep_answer(_path(digest), "gain", marks=marks, answer=asdict(gain))


def _digest(marks: Marks) -> str:
    return hashlib.sha256(json.dumps(dict(marks), sort_keys=True).encode()).hexdigest()[:16]


def _path(digest: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / "compile-gains" / f"{digest}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileChoice:
    """Whether the updates of a run are compiled, and why; `compiling_s` is the time compiling took so far.

    `is_kept`: the choice was made by an earlier part of this run and is reused. `is_short`: nothing was
    compared, because the training is too short to gain from compiling.
    """

    is_on: bool
    reason: str
    asked: str = "auto"
    compiling_s: float = 0.0
    marks: Mapping[str, Any] = field(default_factory=dict)
    is_kept: bool = False
    is_short: bool = False

    @property
    def is_chosen(self) -> bool:
        """Whether it was typed or follows from times, and not only from what stands in the way."""
        return self.asked != "auto" or bool(self.marks)

    @property
    def sentence(self) -> str:
        """The line that a run prints."""
        since = ", as chosen when the run started" if self.is_kept else ""
        return f"compile {'on' if self.is_on else 'off'}{since}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """For plan.json, where a continued run finds it."""
        return {"asked": self.asked, "on": self.is_on, "reason": self.reason, "marks": dict(self.marks)}


class Timer(Protocol):
    """Measures a program's updates."""

    @property
    def failure(self) -> str | None:
        """Why the model could not be compiled."""
        ...

    def time_plain(self) -> float:
        """Seconds of an uncompiled update."""
        ...

    def time_compiled(self) -> tuple[float, float]:
        """Seconds of compiling, and of a compiled update."""
        ...


def choose_compile(
    recipe: Recipe,
    program: TrainingProgram,
    *,
    first: int,
    total: int,
    trainings: int = 1,
    image_shape: tuple[int, int, int],
    stored: Mapping[str, Any] | None = None,
    max_time_s: float | None = None,
    goes_on: Callable[[], bool],
    reporter: Reporter,
) -> CompileChoice | None:
    """Decides for updates first..total-1 and switches the program; None if the run was asked to stop.

    `trainings` of the same length share the compiled code (the folds of a cross-validation). `stored` is the
    earlier choice in the run's plan, which a continued run keeps.
    """
    if recipe.compile != "auto":
        return CompileChoice(is_on=recipe.compile == "on", reason="asked for", asked=recipe.compile)
    obstacle = _obstacle(recipe, program)
    if obstacle is not None:
        return CompileChoice(is_on=False, reason=obstacle)
    marks = _marks(recipe, program, image_shape=image_shape)
    choice = _kept(stored, marks)
    if choice is None and recipe.deterministic:
        choice = _off("--deterministic measures no times; --compile on compiles", marks)
    if choice is None:
        least_s = LEAST_CPU_S if program.device.is_cpu else LEAST_ACCELERATOR_S
        try:
            with ProgramTimer(program, first=first, goes_on=goes_on, reporter=reporter) as timer:
                choice = decide(
                    timer,
                    updates_left=total - first,
                    trainings=trainings,
                    marks=marks,
                    least_s=least_s,
                    max_time_s=max_time_s,
                )
        except MeasuringStoppedError:
            # Even then one more update may follow; it runs uncompiled.
            _leave(program, is_on=False)
            return None
    _leave(program, is_on=choice.is_on)
    return choice


def _leave(program: TrainingProgram, *, is_on: bool) -> None:
    if program.compiled.is_on != is_on:
        program.compiled.switch(is_on)
    if program.capture is not None:
        program.capture.forget()


def decide(
    timer: Timer,
    *,
    updates_left: int,
    trainings: int = 1,
    marks: Mapping[str, Any],
    least_s: float,
    max_time_s: float | None = None,
) -> CompileChoice:
    """Measures as little as possible: nothing if the run is short or the answer is remembered.

    The decision depends only on the measured times, not on who measured them or on what is already compiled:
    a repeated run must compute the same bits, and compiled code may round differently.
    """
    if updates_left < FEWEST_UPDATES:
        how_many = "1 update is" if updates_left == 1 else f"{updates_left} updates are"
        return _off(f"{how_many} too few to gain from it", marks, is_short=True)
    gain = recall_gain(marks)
    if gain is None:
        gain = Gain(plain_s=timer.time_plain())
        remember_gain(marks, gain)
    expected_s = gain.plain_s * updates_left * trainings
    if max_time_s is not None:
        expected_s = min(expected_s, max_time_s)
    if expected_s < least_s:
        what = "the training takes" if trainings == 1 else f"all {trainings} trainings take"
        return _off(f"{what} only about {expected_s:.0f} s uncompiled", marks, is_short=True)
    who = "measured by an earlier run"
    spent_s = 0.0
    if gain.compiled_s is None:
        who = "measured before the first update"
        spent_s, compiled_s = timer.time_compiled()
        if timer.failure is not None:
            return _off(timer.failure, marks)
        gain = replace(gain, compiled_s=compiled_s, compiling_s=spent_s)
        remember_gain(marks, gain)
    return CompileChoice(
        is_on=_pays(gain, expected_s=expected_s),
        reason=f"{_in_words(gain)} ({who})",
        compiling_s=spent_s,
        marks=marks,
    )


def _pays(gain: Gain, *, expected_s: float) -> bool:
    assert gain.compiled_s is not None
    share_won = 1 - gain.compiled_s / gain.plain_s
    return share_won > _LEAST_SHARE_WON and share_won * expected_s > gain.compiling_s


def _in_words(gain: Gain) -> str:
    assert gain.compiled_s is not None
    return (
        f"an update takes {gain.compiled_s:.3g} s compiled and {gain.plain_s:.3g} s uncompiled, and "
        f"compiling takes {gain.compiling_s:.0f} s"
    )


def _off(reason: str, marks: Marks, *, is_short: bool = False) -> CompileChoice:
    return CompileChoice(is_on=False, reason=reason, marks=marks, is_short=is_short)


def _obstacle(recipe: Recipe, program: TrainingProgram) -> str | None:
    """Why `auto` does not even measure; None if it does."""
    if program.stages is not None:
        return f"the model runs {pieces_of(program)}, which is compiled only with --compile on"
    if program.group.size > 1:
        return "several ranks are compiled only with --compile on"
    if program.draws.facts.needs_places:
        return DRAWS_OBSTACLE
    if recipe.fp_exceptions:
        return "--fp-exceptions checks every layer by itself"
    return None


def _kept(stored: Mapping[str, Any] | None, marks: Mapping[str, Any]) -> CompileChoice | None:
    """An earlier choice for the same work on the same device, whatever the layout was then."""
    if stored is None or "on" not in stored:
        return None
    before = stored.get("marks", {})
    # Plans of older versions lack the `_CODE` mark.
    if before and _of_work({_CODE: marks.get(_CODE), **before}) != _of_work(marks):
        return None
    # Without marks nothing was measured: the choice was typed, or the layout could not be compiled.
    if not before and stored["on"] and stored.get("asked") == "auto":
        return None
    return CompileChoice(is_on=bool(stored["on"]), reason=str(stored["reason"]), marks=marks, is_kept=True)


def _of_work(marks: Marks) -> dict[str, Any]:
    return {name: value for name, value in marks.items() if name not in _OF_LAYOUT}


def _marks(recipe: Recipe, program: TrainingProgram, *, image_shape: tuple[int, int, int]) -> dict[str, Any]:
    """Everything that the timings may depend on."""
    batches = program.batches
    return {
        "device": program.device.description,
        _CODE: code_key(),
        "torch": torch.__version__,
        "model": recipe.model,
        "parameters": len(program.parameters.values),
        "image": list(image_shape),
        "micro_batch_size": batches.micro,
        "accumulation": batches.accumulation,
        "precision": program.precision.description,
        "feed": type(program.feed).__name__,
        "captured": program.capture is not None,
        **recipe.model_dump(mode="json", include=set(fields_with(Fact.WORK)), exclude_defaults=True),
    }
