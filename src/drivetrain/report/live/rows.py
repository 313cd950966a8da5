"""The rows of the list of runs: each follows one directory and reads only what changed in it."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from drivetrain.catalogue.metrics import brief_metric
from drivetrain.core.errors import DrivetrainError
from drivetrain.core.files import read_json
from drivetrain.recipe.load import read_recipe_yaml
from drivetrain.report.live.events_file import EventsFile
from drivetrain.report.live.find import Found
from drivetrain.report.live.progress import Progress, finite
from drivetrain.store.crossval_directory import CrossvalDirectory
from drivetrain.store.directory import RunDirectory
from drivetrain.store.lock import is_among
from drivetrain.store.run_state import Beat, Pulse, State, first_beat, state_of, state_of_job

__all__ = ["FollowedJob", "FollowedRun", "Row", "unreadable_row"]

# They change all the time, and no page shows them.
_NOT_SHOWN = frozenset({"heartbeats", "checkpoints", "tensorboard", "wandb"})


class Row(TypedDict):
    """A run in the list; `version` changes when its page may look different."""

    id: str
    name: str
    parent: str | None
    is_job: bool
    state: State
    model: str | None
    data: str | None
    done: int
    total: int | None
    unit: str
    metric: str | None
    last: float | None
    best: float | None
    loss: float | None
    images_per_second: float | None
    elapsed_seconds: float | None
    began: float | None
    changed: float | None
    points: list[tuple[int, float]]
    version: str


class FollowedRun:
    """One run."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._run = RunDirectory(found.path)
        self._events = EventsFile(self._run.metrics)
        self._progress = Progress()
        self._pulse = Pulse()
        self._identity = _Remembered(self._run.identity, _json)
        self._recipe = _Remembered(self._run.recipe, _yaml)
        self._plan = _Remembered(self._run.plan, _json)

    def row(self, held: frozenset[int] | None) -> Row:
        """The row as of now; `held` are the locks held on this host."""
        self._read_events()
        progress = self._progress
        # A finished run is looked at as long as the server runs; its heartbeat has nothing more to say.
        beat = None if progress.has_summary else first_beat(self.found.path)
        asked = self._identity.value() or self._recipe.value()
        metric = progress.metric(_text(asked.get("best_by")))
        changed_s = _changed_s(self._run.metrics) or _changed_s(self._run.recipe)
        state = self._state(beat, held)
        current = beat.content if beat is not None and state == "running" else None
        return Row(
            id=self.found.id,
            name=self.found.name,
            parent=self.found.parent,
            is_job=False,
            state=state,
            model=_text(asked.get("model")),
            data=_text(asked.get("dataset")),
            done=max(progress.update, 0 if current is None else int(finite(current.update) or 0)),
            total=self._total(),
            unit="updates",
            metric=None if metric is None else brief_metric(metric),
            last=progress.last(metric),
            best=progress.best(metric),
            loss=progress.loss,
            images_per_second=(current and finite(current.images_per_second)) or progress.images_per_second,
            elapsed_seconds=progress.elapsed_s or None,
            began=_changed_s(self._run.recipe),
            changed=changed_s,
            points=progress.points,
            version=_version([self.found.path], state),
        )

    def _read_events(self) -> None:
        while True:
            new = self._events.read_new()
            if new.is_fresh:
                self._progress = Progress()
            self._progress.add(new.lines)
            if not new.has_more:
                return

    def _state(self, beat: Beat | None, held: frozenset[int] | None) -> State:
        return state_of(
            has_summary=self._progress.has_summary,
            is_held=is_among(self.found.path, held),
            beat=beat,
            silence_s=0.0 if beat is None else self._pulse.age_s(beat.written_s),
        )

    def _total(self) -> int | None:
        total = self._plan.value().get("total_updates")
        return total if isinstance(total, int) else None


class FollowedJob:
    """One cross-validation; it shows how many of its folds are finished."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._job = CrossvalDirectory(found.path)
        self._record = _Remembered(self._job.record, _json)
        self._recipe = _Remembered(self._job.recipe, _yaml)

    def row(self, held: frozenset[int] | None, folds: Sequence[Row]) -> Row:
        """The row as of now, from the record and the rows of the folds."""
        record, recipe = self._record.value(), self._recipe.value()
        metric, last, best = _means(record)
        state = state_of_job(
            record, is_held=is_among(self.found.path, held), folds=[fold["state"] for fold in folds]
        )
        times = [fold["elapsed_seconds"] for fold in folds if fold["elapsed_seconds"] is not None]
        first = folds[0] if folds else None
        changes = [_changed_s(self._job.record), *(fold["changed"] for fold in folds)]
        total = record.get("folds")
        return Row(
            id=self.found.id,
            name=self.found.name,
            parent=None,
            is_job=True,
            state=state,
            model=_text(recipe.get("model")) or (first["model"] if first else None),
            data=_text(recipe.get("dataset")) or (first["data"] if first else None),
            done=sum(fold["state"] == "finished" for fold in folds),
            total=total if isinstance(total, int) else None,
            unit="folds",
            metric=metric,
            last=last,
            best=best,
            loss=None,
            images_per_second=None,
            elapsed_seconds=sum(times) if times else None,
            began=min((fold["began"] for fold in folds if fold["began"]), default=changes[0]),
            changed=max((change for change in changes if change is not None), default=None),
            points=[],
            version=_version([self.found.path], state, *(fold["version"] for fold in folds)),
        )


def unreadable_row(found: Found) -> Row:
    """The row of a run whose files hold something else than a run writes."""
    return Row(
        id=found.id,
        name=found.name,
        parent=found.parent,
        is_job=found.is_job,
        state="stopped",
        model=None,
        data=None,
        done=0,
        total=None,
        unit="updates",
        metric=None,
        last=None,
        best=None,
        loss=None,
        images_per_second=None,
        elapsed_seconds=None,
        began=None,
        changed=None,
        points=[],
        version=_version([found.path], "unreadable"),
    )


class _Remembered:
    """The content of a small file, read again only when it changes; empty while it cannot be read."""

    def __init__(self, path: Path, read: Callable[[Path], dict[str, Any]]) -> None:
        self._path = path
        self._read = read
        self._known: tuple[tuple[int, int], dict[str, Any]] | None = None

    def value(self) -> dict[str, Any]:
        try:
            found = self._path.stat()
            key = (found.st_mtime_ns, found.st_size)
            if self._known is None or self._known[0] != key:
                self._known = (key, self._read(self._path))
            return self._known[1]
        except (OSError, ValueError, RecursionError, DrivetrainError):
            return {}


def _json(path: Path) -> dict[str, Any]:
    return read_json(path)


def _yaml(path: Path) -> dict[str, Any]:
    return read_recipe_yaml(path)


def _means(record: Mapping[str, Any]) -> tuple[str | None, float | None, float | None]:
    """The metric of a finished cross-validation, and the means of its last and best values."""
    try:
        statistics = record["statistics"]
        metric = str(statistics["metric"])
        last, best = (float(statistics[which][metric]["mean"]) for which in ("last", "best"))
    except (KeyError, TypeError, ValueError):
        return None, None, None
    return f"mean {brief_metric(metric)}", last, best


def _version(folders: Sequence[Path], *parts: str) -> str:
    """A short text that changes with the events and with the names in a run's directory."""
    stamps = [stamp for folder in folders for stamp in _stamps(folder)]
    return hashlib.sha256(repr((stamps, parts)).encode()).hexdigest()[:16]


def _stamps(folder: Path) -> list[tuple[str, int, int]]:
    """The directory, its folders of pictures, and the events: all that changes when a page does."""
    found = [("", folder), ("metrics.jsonl", folder / "metrics.jsonl")]
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        names = []
    found += [(name, folder / name) for name in sorted(names) if name not in _NOT_SHOWN]
    return [(name, *_stamp(path)) for name, path in found]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def _changed_s(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
