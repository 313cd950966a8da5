"""`plan --pictures`: the predicted update of a plan as a timeline, its memory, and a Chrome trace."""

import json
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_atomically
from drivetrain.pictures.update.picture import UpdatePicture, draw_update
from drivetrain.pipeline.memory.memory_prediction import MemoryPrediction
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.plan.predicted_update import PredictedUpdate, predict_update
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.pass_times import PassTimes
from drivetrain.schedules.recorded_timeline import chrome_trace
from drivetrain.schedules.simulator import Simulation

__all__ = ["check_picture_folder", "draw_plan"]

_TIMELINES, _MEMORY, _TRACE = ("timeline.png", "timeline.svg"), "memory.png", "timeline.json"


def check_picture_folder(folder: Path) -> None:
    """Refuses a folder that already holds one of the files, or that cannot be one."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise BadInputError(f"--pictures {folder}: {nearest} is a file; --pictures new-folder works.")
    for name in (*_TIMELINES, _MEMORY, _TRACE):
        path = folder / name
        if path.exists() and (path.is_dir() or path.stat().st_size):
            raise BadInputError(f"--pictures {folder}: {path} exists already; name a new folder.")


def draw_plan(
    outline: RunOutline,
    folder: Path,
    *,
    times: PassTimes | None = None,
    memory: MemoryPrediction | None = None,
    limit_bytes: int | None = None,
) -> str:
    """Writes the pictures of an update into a folder; returns a sentence about them.

    Without `times`, passes take time in proportion to their FLOPs; without `memory`, it is predicted here.
    """
    predicted = predict_update(outline, times=times, memory=memory)
    simulation, course = predicted.course()
    picture = UpdatePicture(
        title=_title(outline.recipe, predicted, simulation),
        predicted=course,
        unit=predicted.times.unit,
        limit_bytes=limit_bytes,
    )
    _make(folder)
    draw_update([folder / name for name in _TIMELINES], picture, with_memory=False)
    written = [*_TIMELINES, _TRACE]
    if picture.has_memory:
        draw_update([folder / _MEMORY], picture, with_memory=True)
        written.append(_MEMORY)
    facts = {"bubble": simulation.bubble, "time": _unit_in_words(predicted.times)}
    trace = chrome_trace(course.spans, facts=facts, memory=course.memory)
    write_atomically(folder / _TRACE, json.dumps(trace).encode() + b"\n")
    problem = "" if predicted.problem is None else f" {predicted.problem}"
    return f"{', '.join(written)} are in {folder}; timeline.json opens in ui.perfetto.dev.{problem}"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"--pictures {folder} cannot be made ({error.strerror}); --pictures new-folder works."
        ) from None


def _title(recipe: Recipe, predicted: PredictedUpdate, simulation: Simulation) -> str:
    times, schedule = predicted.times, predicted.schedule
    length = simulation.seconds_per_update + times.update
    passes = f"{schedule.micro_batches} micro-batch{'es' if schedule.micro_batches > 1 else ''}"
    how = f"{schedule.name}, {passes}" if schedule.devices > 1 else passes
    return f"{recipe.model}, {how}: {_length(length, times)} per update, bubble {simulation.bubble:.1%}"


def _length(length: float, times: PassTimes) -> str:
    if times.unit == "s":
        return f"{length * 1e3:.3g} ms ({times.source})" if length < 1 else f"{length:.3g} s ({times.source})"
    return f"{length:.3g} forward passes ({times.source})"


def _unit_in_words(times: PassTimes) -> str:
    if times.unit == "s":
        return f"seconds, {times.source}"
    return "a second is the forward pass of one micro-batch through the whole model, by FLOPs"
