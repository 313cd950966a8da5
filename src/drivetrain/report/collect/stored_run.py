"""The files of a run as plain values; what is missing is empty, and what is damaged is named."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import DrivetrainError
from drivetrain.core.files import read_json
from drivetrain.recipe.load import read_recipe_yaml
from drivetrain.recipe.plain import schedule_name
from drivetrain.store.directory import RunDirectory
from drivetrain.store.listing import status_of
from drivetrain.store.metrics_file import damaged_events_of, read_events
from drivetrain.store.origins import kept_origins
from drivetrain.store.run_state import State
from drivetrain.store.update_history import DamagedHistoryError, read_history

__all__ = ["DAMAGE", "StoredRun", "read_run"]

_Part = TypeVar("_Part")
DAMAGE = (
    DrivetrainError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What reading files that hold something unexpected raises."""


@dataclass(slots=True, kw_only=True)
class StoredRun:
    """What the files of a run hold; `problems` are sentences about damaged ones."""

    directory: RunDirectory
    state: State
    recipe: dict[str, Any]
    origins: dict[str, str] | None
    plan: dict[str, Any]
    data: dict[str, Any]
    environment: dict[str, Any]
    events: list[dict[str, Any]]
    history: dict[str, NDArray[np.float64]]
    problems: list[str] = field(default_factory=list)
    trainings: list[dict[str, Any]] = field(init=False)
    validations: list[dict[str, Any]] = field(init=False)
    summary: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Sorts the events by kind; the summary is empty before the end of a run."""
        self.trainings = [event for event in self.events if event["event"] == "train"]
        self.validations = [event for event in self.events if event["event"] == "validation"]
        summaries = (event for event in reversed(self.events) if event["event"] == "summary")
        self.summary = next(summaries, {})

    @property
    def class_names(self) -> list[str]:
        return [str(name) for name in self.data.get("class_names", [])]

    def part(self, what: str, collect: Callable[["StoredRun"], _Part]) -> _Part | None:
        """A part of the page; None, and a sentence, if its files hold something unexpected."""
        try:
            return collect(self)
        except DAMAGE as error:
            detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            self.problems.append(f"{what} cannot be shown, because files of the run are damaged ({detail}).")
            return None


def read_run(path: Path) -> StoredRun:
    """Reads a run directory, whatever state it is in."""
    directory, problems = RunDirectory(path), list[str]()
    entries = read_events(directory.metrics)
    damaged = damaged_events_of(directory.metrics, entries)
    problems += [] if damaged is None else [damaged]
    events = [entry for entry in entries if entry is not None]
    return StoredRun(
        directory=directory,
        state=status_of(directory, events),
        recipe=_read(directory.recipe, _recipe, problems),
        origins=kept_origins(directory.origins),
        plan=_read(directory.plan, read_json, problems),
        data=_read(directory.data, read_json, problems),
        environment=_read(directory.environment, read_json, problems),
        events=events,
        history=_read_history(directory.updates, problems),
        problems=problems,
    )


def _read(path: Path, read: Callable[[Path], dict[str, Any]], problems: list[str]) -> dict[str, Any]:
    try:
        return read(path) if path.exists() else {}
    except DAMAGE as error:
        problems.append(str(error))
        return {}


def _recipe(path: Path) -> dict[str, Any]:
    """A recipe; runs of older versions have another name for the default schedule."""
    recipe = read_recipe_yaml(path)
    return recipe | {"pipeline_schedule": schedule_name(recipe.get("pipeline_schedule"))}


def _read_history(path: Path, problems: list[str]) -> dict[str, NDArray[np.float64]]:
    try:
        found = read_history(path) if path.exists() else {}
    except DamagedHistoryError as error:
        problems.append(f"{error}; curves show what metrics.jsonl holds.")
        return {}
    return {name: values for name, values in found.items() if values.ndim == 1 and values.dtype.kind == "f"}
