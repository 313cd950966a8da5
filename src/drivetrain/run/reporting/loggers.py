"""Event log of a run and its readers: terminal, metrics.jsonl, TensorBoard and W&B.

Every reader gets every event, in the order in which the readers were added.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from drivetrain.catalogue.metrics import logged_name, shown_metric
from drivetrain.console.figures import plain_numbers, score_lines, speed_text
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import MetricsLog

__all__ = [
    "EventLog",
    "EventReader",
    "ScreenLog",
    "TensorBoardLog",
    "TimingLog",
    "board_folder",
    "check_loggers",
    "open_event_log",
    "open_worker_log",
    "rank_logs",
]

_SHOWN_METRICS = ("loss", "accuracy", "dice")


class EventReader(Protocol):
    """Receives the events of a run."""

    def event(self, kind: str, update: int, values: Mapping[str, Any]) -> None:
        """Takes a "train", "validation" or "summary" event."""
        ...

    def close(self) -> None:
        """Closes files or connections; a continued run opens them again."""
        ...


class EventLog:
    """Hands every event to all its readers."""

    def __init__(self, readers: Iterable[EventReader] = ()) -> None:
        self._readers = list(readers)

    def add(self, reader: EventReader) -> None:
        """One more reader, after the others."""
        self._readers.append(reader)

    def training(self, update: int, **values: Any) -> None:
        self._hand_on("train", update, values)

    def validation(self, update: int, **values: Any) -> None:
        self._hand_on("validation", update, values)

    def summary(self, update: int, **values: Any) -> None:
        self._hand_on("summary", update, values)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def _hand_on(self, kind: str, update: int, values: Mapping[str, Any]) -> None:
        for reader in self._readers:
            reader.event(kind, update, values)


def open_event_log(
    recipe: Recipe,
    *,
    directory: RunDirectory,
    screen: EventReader,
    first_update: int,
    worker: int | None = None,
) -> EventLog:
    """Opens the readers that a recipe asks for; a continued run appends to their earlier records.

    `worker` is the rank if all ranks write logs of their own.
    """
    folder = log_folder(recipe, directory)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    copy = None if folder is None else folder / directory.metrics.name
    log = EventLog([MetricsLog(directory.metrics, copy=copy), screen])
    if recipe.tensorboard:
        log.add(TensorBoardLog(board_folder(recipe, directory, worker=worker), first_update=first_update))
    if recipe.wandb:
        from drivetrain.run.reporting.wandb_log import WandbLog

        log.add(WandbLog(recipe, directory=directory, folder=folder or directory.path))
    return log


def open_worker_log(
    recipe: Recipe, *, directory: RunDirectory, screen: EventReader, first_update: int, worker: int
) -> EventLog:
    """The log of a rank that is not the first, with --log-all-workers.

    A host that does not see the run directory writes TensorBoard logs only to a --log-dir.
    """
    log = EventLog([screen])
    if recipe.tensorboard and (recipe.log_dir is not None or directory.path.is_dir()):
        log.add(TensorBoardLog(board_folder(recipe, directory, worker=worker), first_update=first_update))
    return log


def board_folder(recipe: Recipe, directory: RunDirectory, *, worker: int | None = None) -> Path:
    """The folder of the TensorBoard logs; each rank has one of its own if all write."""
    folder = log_folder(recipe, directory) or directory.tensorboard
    return folder if worker is None else folder / f"worker_{worker}"


def rank_logs(recipe: Recipe, directory: RunDirectory, rank: int) -> list[Path]:
    """Where a rank writes its output: the run directory keeps that of rank 0 even with --log-dir."""
    own, folder = directory.rank_log(rank), log_folder(recipe, directory)
    if folder is None:
        return [own]
    folder.mkdir(parents=True, exist_ok=True)
    return [own, folder / own.name] if rank == 0 else [folder / own.name]


def check_loggers(recipe: Recipe) -> None:
    """Refuses loggers that cannot write, before the run writes anything."""
    if recipe.wandb:
        from drivetrain.run.reporting.wandb_log import require_wandb

        require_wandb()
    if recipe.log_dir is not None:
        _check_log_dir(Path(recipe.log_dir))


def _check_log_dir(path: Path) -> None:
    existing = next(entry for entry in (path, *path.absolute().parents) if entry.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise BadInputError(f"--log-dir {path}: {existing} is not a writable folder; try --log-dir logs.")


def log_folder(recipe: Recipe, directory: RunDirectory) -> Path | None:
    """--log-dir DIR keeps each run's logs in DIR/<run name>; None: they stay in the run directory."""
    return None if recipe.log_dir is None else Path(recipe.log_dir) / directory.path.resolve().name


class ScreenLog:
    """Prints one line per training log and validation; `unit` is what the speed counts."""

    def __init__(self, reporter: Reporter, *, total_updates: int, unit: str = "images") -> None:
        self._reporter, self._unit = reporter, unit
        self._total_updates = total_updates

    def event(self, kind: str, update: int, values: Mapping[str, Any]) -> None:
        if kind == "summary":
            return
        parts = [f"update {update}/{self._total_updates}", f"epoch {values['epoch']}"]
        numbers = plain_numbers(values) if kind == "validation" else values
        parts += [
            f"{_shown_name(kind, name)}: {numbers[name]:.4f}" for name in _SHOWN_METRICS if name in numbers
        ]
        if "images_per_second" in values:
            parts.append(f"{self._unit}/s: {speed_text(values['images_per_second'])}")
        if "loss_scale" in values:
            parts.append(f"loss scale: {values['loss_scale']:g}  skipped: {values['skipped_updates']}")
        if "compile_seconds" in values:
            parts.append(f"first update: {values['compile_seconds']:.2f} s")
        by_class = score_lines(values) if kind == "validation" else []
        self._reporter.say("\n    ".join(["  ".join(parts), *by_class]))

    def close(self) -> None:
        """The screen stays as it is."""


class TimingLog:
    """--verbosity verbose: prints where the time since the last log went."""

    def __init__(self, reporter: Reporter, spent: Callable[[], Mapping[str, float]]) -> None:
        self._reporter, self._spent = reporter, spent
        self._before: Mapping[str, float] = {}

    def event(self, kind: str, update: int, values: Mapping[str, Any]) -> None:  # noqa: ARG002
        if kind != "train":
            return
        now = self._spent()
        since = {part: seconds - self._before.get(part, 0.0) for part, seconds in now.items()}
        self._before = now
        words = ", ".join(f"{part} {max(0.0, seconds):.3f}" for part, seconds in since.items())
        self._reporter.detail(f"  seconds since the last log: {words}")

    def close(self) -> None:
        """There is nothing to end."""


class TensorBoardLog:
    """Writes scalars for TensorBoard; a continued run hides those after its checkpoint (`purge_step`)."""

    def __init__(self, folder: Path, *, first_update: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=first_update + 1)

    def event(self, kind: str, update: int, values: Mapping[str, Any]) -> None:
        if kind == "summary":
            return
        for name, value in values.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{kind}/{logged_name(name)}", value, update)

    def close(self) -> None:
        self._writer.close()


def _shown_name(kind: str, metric: str) -> str:
    """For example training_accuracy or validation_loss; the training loss is just `loss`."""
    if kind == "train" and metric == "loss":
        return metric
    when, words = "training" if kind == "train" else kind, shown_metric(metric)
    return f"{when}_{metric}" if words == metric else f"{when} {words}"
