"""Runs a cross-validation: trains all folds, one by one or in parallel, and summarises them.

The job can be stopped and continued; finished folds are not trained again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from drivetrain.core.errors import BadInputError, DrivetrainError, RunFailedError
from drivetrain.core.files import write_atomically, write_json
from drivetrain.crossvalidation.fold_training import (
    FoldOutcome,
    FoldRequest,
    OpenFold,
    train_fold,
    train_side_by_side,
)
from drivetrain.crossvalidation.pages import class_lines, result_line, table_lines, write_pages
from drivetrain.crossvalidation.reporter import CrossvalReporter
from drivetrain.crossvalidation.results import FoldResult, Statistics, read_fold, summarise
from drivetrain.models.own_model import MakeModel
from drivetrain.ranks.rank_place import Start, how_to_start
from drivetrain.ranks.threads import cores
from drivetrain.recipe.checks.folds import require_crossval
from drivetrain.recipe.ending import TIME_IS_UP_STATUS, parse_duration_s
from drivetrain.recipe.fields import fields_with, plain_values
from drivetrain.recipe.layout import batch_of, rank_count
from drivetrain.recipe.load import ResolvedRecipe, read_recipe_yaml, recipe_to_yaml
from drivetrain.recipe.notes import Fact
from drivetrain.recipe.schema import Recipe
from drivetrain.run.request import series_of
from drivetrain.run.session import RunResult
from drivetrain.run.stopping import StopRequest, listen_for_stop
from drivetrain.store.crossval_directory import (
    CrossvalDirectory,
    FreshStart,
    choose_job,
    make_directory,
    remove_directories,
)
from drivetrain.store.lock import hold_lock
from drivetrain.store.metrics_file import newest_update, read_metrics

__all__ = ["CrossvalResult", "crossval_resolved", "device_names"]


def device_names(name: str) -> list[str]:
    """All accelerators if --device is `auto` or only a kind such as `cuda`; else the one device named."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None or name not in ("auto", accelerator.type):
        return [name]
    return [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossvalResult:
    """The result of a cross-validation; `status` is "finished", or "stopped" with the folds done so far."""

    directory: Path
    status: str
    folds: tuple[FoldResult, ...]
    statistics: Statistics | None
    exit_status: int = 0


def crossval_resolved(
    resolved: ResolvedRecipe,
    *,
    reporter: CrossvalReporter,
    open_fold: OpenFold | None = None,
    make_model: MakeModel | None = None,
    began_s: float | None = None,
) -> CrossvalResult:
    """Trains all folds of a recipe that are not finished yet.

    For data and models given in Python, `open_fold` returns the splits of a fold, `make_model` a new model.
    --max-time counts from `began_s` on (seconds since 1970; default: now).
    """
    began_s = time.time() if began_s is None else began_s
    recipe = resolved.recipe
    require_crossval(recipe)
    batch = batch_of(recipe)
    directory, identity, is_fresh = choose_job(recipe, name=resolved.name, global_batch=batch.global_batch)
    made = make_directory(directory.path)
    with hold_lock(directory.path), listen_for_stop() as stop:
        job = _CrossvalSession(resolved, directory, identity, reporter, stop, open_fold, make_model, began_s)
        try:
            return job.carry_out(is_fresh=is_fresh)
        except BadInputError:
            if not directory.holds_job:
                remove_directories(made)
            raise


class _CrossvalSession:
    """A cross-validation in its main process, from the lock on the directory to the result."""

    def __init__(
        self,
        resolved: ResolvedRecipe,
        directory: CrossvalDirectory,
        identity: dict[str, Any],
        reporter: CrossvalReporter,
        stop: StopRequest,
        open_fold: OpenFold | None,
        make_model: MakeModel | None,
        began_s: float,
    ) -> None:
        self.resolved, self.recipe, self.directory = resolved, resolved.recipe, directory
        self.identity, self.reporter, self.stop = identity, reporter, stop
        self.open_fold, self.make_model = open_fold, make_model
        self.start = FreshStart(directory)
        self.folds: int = self.recipe.folds or 0
        self.results: list[FoldResult] = []
        self.trained = 0
        self._began_s = began_s

    def carry_out(self, *, is_fresh: bool) -> CrossvalResult:
        if is_fresh:
            self.start.begin(self._record("unfinished"))
            self._write_recipe()
        try:
            if self.recipe.parallel_folds > 1:
                return self._carry_out_side_by_side(is_fresh=is_fresh)
            for fold in range(self.folds):
                place = f"fold {fold} ({fold + 1} of {self.folds})"
                if self._is_finished(fold):
                    self.reporter.hold_back(f"{place} is finished")
                elif self._is_stopped() or self._train(fold, place, is_fresh=is_fresh):
                    return self._stopped()
                self.results.append(read_fold(self.directory.fold(fold), fold=fold))
        finally:
            self.start.commit()
        return self._finished()

    def _carry_out_side_by_side(self, *, is_fresh: bool) -> CrossvalResult:
        """Trains several folds in parallel; each process writes its log file and prints nothing."""
        left = [fold for fold in range(self.folds) if not self._is_finished(fold)]
        at_once = min(self.recipe.parallel_folds, max(1, len(left)))
        self.reporter.hold_back(f"{len(left)} of {self.folds} folds to train, {at_once} in parallel")
        if len(left) == 1:
            # `may_begin` is asked only before a second fold, so nothing else would print the held-back line.
            self.reporter.say_held_back()
        try:
            with self.reporter.showing("training folds", total=len(left), is_done=lambda: not self.stop.made):
                ended = train_side_by_side(
                    left,
                    at_once=at_once,
                    train=partial(self._fold_in_slot, at_once=at_once),
                    may_begin=lambda: not self._is_stopped() and self._has_begun(left[0]),
                    stop=self.stop,
                    on_look=self._show_folds,
                    on_end=self._say_end,
                )
                self._raise_failure(ended)
        except BadInputError:
            self._take_back(left, is_fresh=is_fresh)
            raise
        done = [fold for fold in range(self.folds) if fold not in left or self._is_whole(ended.get(fold))]
        self.results = [read_fold(self.directory.fold(fold), fold=fold) for fold in done]
        return self._finished() if len(done) == self.folds else self._stopped()

    def _has_begun(self, fold: int) -> bool:
        """Whether a fold has created its directory, which it does once all its checks have passed."""
        has_begun = self.directory.fold(fold).path.exists()
        if has_begun:
            self.reporter.say_held_back()
        return has_begun

    def _show_folds(self, running: Sequence[int]) -> None:
        """Shows the newest update of every running fold in the progress line."""
        begun = [fold for fold in running if self.directory.fold(fold).holds_run]
        if begun and self.reporter.progress_due():
            how_far = (
                f"fold {fold}: update {newest_update(self.directory.fold(fold).metrics)}" for fold in begun
            )
            self.reporter.progress(self.trained, "  ".join(how_far))

    def _say_end(self, fold: int, outcome: FoldOutcome) -> None:
        self.trained += 1
        if outcome.exit_status != BadInputError.exit_status:
            self.reporter.say(f"fold {fold}: {outcome.error or outcome.status}")

    def _raise_failure(self, ended: dict[int, FoldOutcome]) -> None:
        none_began = all(outcome.exit_status == BadInputError.exit_status for outcome in ended.values())
        for fold, outcome in ended.items():
            if outcome.error is None:
                self.stop.make(outcome.exit_status)
            elif none_began:
                raise BadInputError(outcome.error)
            else:
                raise RunFailedError(f"fold {fold} in {self.directory.path} failed: {outcome.error}")

    def _take_back(self, folds: list[int], *, is_fresh: bool) -> None:
        """After a refused request: restores the previous job, unless a fold has already started."""
        if is_fresh and not any(self.directory.fold(fold).path.exists() for fold in folds):
            self.start.undo()

    def _is_whole(self, outcome: FoldOutcome | None) -> bool:
        return outcome is not None and outcome.status == "finished"

    def _fold_in_slot(self, fold: int, slot: int, *, at_once: int) -> Callable[[], FoldOutcome]:
        """A fold for parallel training: folds share the CPU cores, and take turns on the accelerators."""
        devices = device_names(self.recipe.device)
        own = {
            "num_threads": self.recipe.num_threads or max(1, cores() // at_once),
            "device": devices[slot % len(devices)],
        }
        recipe = self.recipe.model_copy(update={**self._changes(fold), **own})
        return partial(train_fold, self._request(recipe))

    def _request(self, recipe: Recipe) -> FoldRequest:
        """The request of a fold; `sibling` is a fold that has started and whose files it must share."""
        begun = (self.directory.fold(fold) for fold in range(self.folds))
        sibling = next((run for run in begun if run.data_files.is_file()), None)
        resolved = replace(self.resolved, recipe=recipe)
        return FoldRequest(resolved, self.open_fold, self.make_model, sibling, began_s=time.time())

    def _train(self, fold: int, place: str, *, is_fresh: bool) -> bool:
        """Trains one fold; True when it was stopped."""
        self.reporter.hold_back(place)
        try:
            result = self._run_fold(fold)
        except BadInputError as error:
            if self.trained:
                raise RunFailedError(f"{place} in {self.directory.path} failed: {error}") from error
            self._take_back([fold], is_fresh=is_fresh)
            raise
        except DrivetrainError as error:
            raise RunFailedError(f"{place} in {self.directory.path} failed: {error}") from error
        except Exception as error:
            error.add_note(f"This happened in {place} of {self.directory.path}.")
            raise
        finally:
            self.reporter.end_log()
        self.trained += 1
        self.start.commit()
        if result.status == "stopped":
            # With several ranks, the launcher handles the signal and this process never sees it.
            self.stop.make(result.exit_status)
        return result.status == "stopped"

    def _run_fold(self, fold: int) -> RunResult:
        recipe = self.recipe.model_copy(update=self._changes(fold))
        # With several ranks, rank 0 prints, so this reporter must print its held-back lines before.
        is_silent_here = how_to_start(None, ranks=rank_count(recipe)) is Start.LAUNCHES_RANKS
        return self._request(recipe).train(
            reporter=self.reporter,
            stop=self.stop,
            series=series_of(self.recipe, trainings=self.folds),
            on_prepared=self.reporter.say_held_back if is_silent_here else None,
        )

    def _changes(self, fold: int) -> dict[str, Any]:
        """The options that turn the recipe of the job into that of one fold."""
        changes: dict[str, Any] = {
            "fold": fold,
            "output_dir": str(self.directory.fold(fold).path),
            "overwrite": False,
        }
        if self.recipe.log_dir is not None:
            changes["log_dir"] = str(Path(self.recipe.log_dir) / self.directory.path.resolve().name)
        if self.recipe.max_time is not None:
            changes["max_time"] = f"{self._remaining_s():.3f}"
        return changes

    def _is_finished(self, fold: int) -> bool:
        """Whether a fold has a summary, and the requested length has not changed since.

        Data and models given in Python are compared by the run of the fold itself, so those folds always run.
        """
        if self.open_fold is not None or self.make_model is not None:
            return False
        run = self.directory.fold(fold)
        entries = read_metrics(run.metrics)
        if not run.holds_run or not entries or entries[-1]["event"] != "summary":
            return False
        stored, asked = read_recipe_yaml(run.recipe), plain_values(self.recipe)
        return all(stored.get(name) == asked[name] for name in fields_with(Fact.LENGTH))

    def _is_stopped(self) -> bool:
        if self.recipe.max_time is not None and self._remaining_s() <= 0:
            self.stop.make(TIME_IS_UP_STATUS)
        return self.stop.made

    def _remaining_s(self) -> float:
        """Seconds left of --max-time, which is the limit of the whole job."""
        assert self.recipe.max_time is not None
        return parse_duration_s(self.recipe.max_time) - self._spent_s()

    def _spent_s(self) -> float:
        return time.time() - self._began_s

    def _stopped(self) -> CrossvalResult:
        write_json(self.directory.record, self._record("unfinished"))
        self._write_recipe()
        self.reporter.result(
            f"stopped with {len(self.results)} of {self.folds} folds finished; the same command continues."
        )
        return self._result("stopped", None, exit_status=self.stop.exit_status)

    def _finished(self) -> CrossvalResult:
        statistics = summarise(self.results, best_by=self.recipe.best_by)
        write_json(self.directory.record, self._record("finished", statistics))
        self._write_recipe()
        with self.reporter.showing("drawing figures"):
            write_pages(self.directory, recipe=self.recipe, folds=self.results, statistics=statistics)
        if not self.trained:
            self.reporter.say(f"{self.directory.path} is already finished; --overwrite starts afresh.")
        for line in [*table_lines(self.results, statistics), *class_lines(statistics)]:
            self.reporter.say(line)
        self.reporter.result(result_line(statistics, folds=self.folds))
        self.reporter.say(f"cross-validation directory: {self.directory.path}")
        return self._result("finished", statistics)

    def _write_recipe(self) -> None:
        lasting = self.recipe.model_copy(update={"overwrite": False})
        write_atomically(self.directory.recipe, recipe_to_yaml(lasting).encode())

    def _record(self, status: str, statistics: Statistics | None = None) -> dict[str, Any]:
        record: dict[str, Any] = {"status": status, "folds": self.folds, "identity": self.identity}
        if statistics is not None:
            per_fold = [result.to_json(statistics.metric) for result in self.results]
            record |= {"per_fold": per_fold, "statistics": statistics.to_json()}
        return record

    def _result(self, status: str, statistics: Statistics | None, *, exit_status: int = 0) -> CrossvalResult:
        return CrossvalResult(
            directory=self.directory.path,
            status=status,
            folds=tuple(self.results),
            statistics=statistics,
            exit_status=exit_status,
        )
