"""The work of one rank in a run: restore, train or validate, finish, and the result."""

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from drivetrain.assembly.training_parts import Assembly
from drivetrain.catalogue.input_kinds import plural_of
from drivetrain.console.figures import plain_numbers, score_lines
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_json
from drivetrain.devices.backend_settings import give_back_freed_memory
from drivetrain.inference.evaluate.evaluation_files import write_evaluation
from drivetrain.models.half_weights import widen_weights
from drivetrain.recipe.ending import TIME_IS_UP_STATUS, early_end_of, parse_duration_s
from drivetrain.run.beginning import introduce, warn_of_changes, write_request
from drivetrain.run.compiling.kept_choice import choose_and_keep
from drivetrain.run.deterministic_trial import undeterministic_operations
from drivetrain.run.left_to_do import TaskLeft, finishing_event, training_left
from drivetrain.run.loop.clocks import RunClock, UpdateTimes
from drivetrain.run.loop.context import RunContext
from drivetrain.run.loop.loop import RunLoop
from drivetrain.run.loop.validation import Validations
from drivetrain.run.reporting.heartbeats import sending_heartbeats
from drivetrain.run.reporting.loggers import (
    EventLog,
    ScreenLog,
    TimingLog,
    open_event_log,
    open_worker_log,
    rank_logs,
)
from drivetrain.run.request import Request
from drivetrain.run.shortage.recovery import Recovery
from drivetrain.run.stopping import StopRequest, TimeLimit
from drivetrain.run.summary.finish import finish_run
from drivetrain.run.summary.time_spent import time_spent
from drivetrain.state.program_state import (
    ProgramState,
    in_one_piece,
    share_parts,
    share_program,
    with_whole_model,
)
from drivetrain.state.saver import restore_program, stored_state
from drivetrain.store.best import Best, best_metric
from drivetrain.store.checkpoint import Checkpoint, newest_checkpoint
from drivetrain.store.checkpoint_paths import sweep_partial
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import OF_EVENTS, MetricsLog, read_metrics
from drivetrain.store.update_history import DamagedHistoryError, read_history


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run; `status` is "finished", "stopped" (signal, or --max-time with exit status 75) or
    "validated" (--training False)."""

    directory: Path
    status: str
    updates: int
    metrics: dict[str, Any]
    model: nn.Module = field(repr=False)
    exit_status: int = 0


class RunSession:
    """The work of one rank in a run. Rank 0 reads and writes the run directory and tells the others."""

    def __init__(
        self, request: Request, *, assembly: Assembly, reporter: Reporter, stop: StopRequest
    ) -> None:
        self.request = request
        self.recipe, self.data, self.plan = request.recipe, request.data, request.plan
        self.directory: RunDirectory = request.directory
        self.assembly, self.reporter, self.stop = assembly, reporter, stop
        self.group = assembly.program.group
        self._stored: ProgramState | None = None
        self._measured_program = assembly.program
        self._recovery = Recovery(request=request, assembly=assembly, reporter=reporter)

    def carry_out(self, warnings: list[str]) -> RunResult:
        """Trains, validates or reports, whichever is left to do."""
        if not self.group.is_first:
            return self._follow()
        sweep_partial(self.directory.checkpoints)
        checkpoint, problems = newest_checkpoint(self.directory.checkpoints)
        self.reporter.log_to(*rank_logs(self.recipe, self.directory, self.group.rank))
        for warning in [*warnings, *problems]:
            self.reporter.warn(warning)
        if checkpoint is not None:
            self._restore(checkpoint)
            checkpoint = checkpoint.without_tensors()
        if not self.recipe.training:
            self._tell_others(TaskLeft("validate"))
            return self._validate_only(checkpoint)
        finished = finishing_event(self.request)
        if finished is not None:
            self._tell_others(TaskLeft("nothing"))
            return self._say_finished(finished, checkpoint)
        warn_of_changes(self.request, self.assembly, checkpoint, reporter=self.reporter)
        write_request(self.request, self.assembly, warnings=warnings)
        introduce(self.request, self.assembly, checkpoint, reporter=self.reporter)
        return self._train(checkpoint)

    def _restore(self, checkpoint: Checkpoint) -> None:
        if self.assembly.program.groups.devices.size == 1:
            restore_program(self.assembly.program, checkpoint)
        else:
            self._stored = stored_state(checkpoint)
        self._restore_records(checkpoint.update)

    def _restore_records(self, updates: int) -> None:
        try:
            history = read_history(self.directory.updates)
        except DamagedHistoryError as error:
            self.reporter.warn(
                f"{error}, so curves and reports lack the values of the first {updates} updates; the weights "
                "are not affected."
            )
            return
        self.assembly.program.records.restore(history, updates=updates)

    def _say_finished(self, summary: dict[str, Any], checkpoint: Checkpoint | None) -> RunResult:
        if checkpoint is None and self.assembly.is_own_model:
            raise BadInputError(
                f"--output-dir {self.directory.path} holds a finished run without a checkpoint, so the "
                "trained weights cannot be loaded; --overwrite trains it again."
            )
        why = f", ended by {summary['ended_by']}" if summary.get("ended_by") else ""
        longer = "--num-epochs" if self.recipe.max_updates is None else "--max-updates"
        more = f"another value of {summary['ended_by'].split()[0]}" if why else f"a larger {longer}"
        self.reporter.result(
            f"{self.directory.path} is already finished: {summary['update']} updates are done{why}; "
            f"{more} continues it, --overwrite starts afresh."
        )
        program = self.assembly.program
        if program.groups.devices.size > 1 and self._stored is not None:
            self._measured_program = with_whole_model(program, self._stored)
        self._hand_over_average()
        return self._result("finished", int(summary["update"]), summary)

    def _train(self, checkpoint: Checkpoint | None) -> RunResult:
        first = 0 if checkpoint is None else checkpoint.update
        MetricsLog(self.directory.metrics).rewind(first)
        entries = read_metrics(self.directory.metrics)
        validates = self.assembly.evaluate is not None
        task = training_left(self.request, checkpoint, entries, validates=validates, reporter=self.reporter)
        self._tell_others(task)
        loop = self._loop(task, log=self._event_log(first), elapsed_before_s=_elapsed_so_far(entries))
        log = loop.context.log
        if self.reporter.is_verbose:
            log.add(TimingLog(self.reporter, lambda: time_spent(loop)))
        try:
            with self._heartbeats(loop):
                reached = self._recovery.guard(loop, partial(self._run, loop, first))
                self._gather_model()
                if loop.is_broken_off:
                    return self._stopped(reached, loop)
                loop.context.pulse.state = "finishing"
                summary = finish_run(
                    loop,
                    update=reached,
                    data=self.data,
                    preprocess=self.assembly.preprocess,
                    program=self._measured_program,
                )
                loop.context.pulse.state = "finished"
        finally:
            log.close()
        self._hand_over_average()
        return self._result("finished", reached, summary)

    def _heartbeats(self, loop: RunLoop) -> AbstractContextManager[None]:
        return sending_heartbeats(self.directory.path, loop.context.program, loop.context.pulse)

    def _run(self, loop: RunLoop, first: int) -> int:
        self._try_deterministic(first)
        with loop.context.pulse.turned_to("compiling" if self.recipe.compile == "auto" else "starting"):
            self._choose_compile(loop, first)
        give_back_freed_memory()
        return loop.run(first)

    def _try_deterministic(self, first: int) -> None:
        """Warns about operations that --deterministic cannot help; every rank looks at its own."""
        if not self.recipe.deterministic or first >= self.plan.epochs.total_updates:
            return
        for sentence in undeterministic_operations(self.assembly.program, first=first):
            self.reporter.warn(sentence)

    def _follow_loop(self, loop: RunLoop, first: int) -> int:
        self._try_deterministic(first)
        return loop.run(first)

    def _choose_compile(self, loop: RunLoop, first: int) -> None:
        with loop.context.clock.measure("probing"):
            loop.choice = choose_and_keep(
                self.request,
                self.assembly,
                first=first,
                stop=self.stop,
                limit=loop.context.limit,
                reporter=self.reporter,
            )

    def _loop(self, task: TaskLeft, *, log: EventLog, elapsed_before_s: float = 0.0) -> RunLoop:
        context = self._context(log, elapsed_before_s=elapsed_before_s)
        times = UpdateTimes(program=context.program)
        validations = Validations(
            context=context,
            times=times,
            events=replace(self.plan.events, rarer=task.rarer),
            evaluate=self.assembly.evaluate,
            best=task.best or Best(self._best_metric),
            early_end=early_end_of(self.recipe, without_progress=task.without_progress),
            is_owed=task.owes_validation,
        )
        return RunLoop(context=context, times=times, validations=validations)

    def _context(self, log: EventLog, *, elapsed_before_s: float) -> RunContext:
        # Only rank 0 watches --max-time: with several clocks, ranks could stop at different updates.
        is_timed = self.recipe.max_time is not None and self.group.is_first
        start_up_s = max(0.0, time.time() - self.request.began_s)
        return RunContext(
            recipe=self.recipe,
            program=self.assembly.program,
            epochs=self.plan.epochs,
            directory=self.directory,
            log=log,
            reporter=self.reporter,
            stop=self.stop,
            clock=RunClock(elapsed_before_s=elapsed_before_s, start_up_s=start_up_s),
            limit=self._time_limit() if is_timed else None,
            outline=self.assembly.outline,
        )

    def _time_limit(self) -> TimeLimit:
        return TimeLimit(parse_duration_s(str(self.recipe.max_time)), began_s=self.request.began_s)

    def _tell_others(self, task: TaskLeft) -> None:
        """Sends the task to all other ranks, and the state they start from."""
        self.group.from_first(task)
        if task.what != "nothing":
            self._share()

    def _share(self) -> None:
        """Sends the state of rank 0 to all ranks; with stages, each rank gets its part."""
        if self.assembly.program.groups.devices.size > 1:
            share_parts(self.assembly.program, self._stored)
        else:
            share_program(self.assembly.program, self.group)
        self._stored = None

    def _follow(self) -> RunResult:
        """What every rank but the first does: the same work, without output or files."""
        task: TaskLeft = self.group.from_first(None)
        if task.what == "nothing":
            return self._result("finished", self.plan.epochs.total_updates, {})
        self._share()
        if task.what == "validate":
            assert self.assembly.evaluate is not None
            with self.assembly.program.weights_to_measure():
                metrics = self.assembly.evaluate(regions=True).as_metrics()
            in_one_piece(self.assembly.program)
            return self._result("validated", task.first, metrics)
        loop = self._loop(task, log=self._worker_log(task.first))
        give_back_freed_memory()
        try:
            with self._heartbeats(loop):
                reached = self._recovery.guard(loop, partial(self._follow_loop, loop, task.first))
                self._gather_model()
                loop.context.pulse.state = "stopped" if loop.is_broken_off else "finished"
        finally:
            loop.context.log.close()
        self._hand_over_average()
        if loop.is_broken_off:
            return self._result("stopped", reached, {}, exit_status=self.stop.exit_status)
        return self._result("finished", reached, {})

    def _gather_model(self) -> None:
        """Collects the whole model on rank 0 for figures and the result, after freeing unused memory."""
        give_back_freed_memory()
        whole = in_one_piece(self.assembly.program)
        if self.group.is_first:
            self._measured_program = whole

    def _worker_log(self, first: int) -> EventLog:
        """What a rank beside the first writes: nothing without --log-all-workers."""
        if not self.recipe.log_all_workers:
            return EventLog()
        return open_worker_log(
            self.recipe,
            directory=self.directory,
            screen=self._screen_log(),
            first_update=first,
            worker=self.group.rank,
        )

    def _screen_log(self) -> ScreenLog:
        total, unit = self.plan.epochs.total_updates, plural_of(self.data.spec.input_kind)
        return ScreenLog(self.reporter, total_updates=total, unit=unit)

    def _hand_over_average(self) -> None:
        """The returned model has the averaged weights, as validated, if there are any (--ema)."""
        if self._measured_program.mover.average is not None:
            self._measured_program.mover.average.adopt()

    def _event_log(self, first: int) -> EventLog:
        return open_event_log(
            self.recipe,
            directory=self.directory,
            screen=self._screen_log(),
            first_update=first,
            worker=self.group.rank if self.recipe.log_all_workers and self.group.size > 1 else None,
        )

    def _stopped(self, reached: int, loop: RunLoop) -> RunResult:
        why = (
            "the time limit of --max-time is reached: " if self.stop.exit_status == TIME_IS_UP_STATUS else ""
        )
        where = f"stopped after update {reached}" if reached else "stopped before the first update"
        kept = "a checkpoint was written; the same command continues the run."
        if not self.recipe.checkpoints or not reached:
            kept = "nothing was saved; the same command starts again from update 0."
        self.reporter.result(f"{why}{where}: {kept}")
        return self._result("stopped", reached, _metrics_so_far(loop), exit_status=self.stop.exit_status)

    @property
    def _best_metric(self) -> str:
        return best_metric(self.recipe, task=self.data.spec.task)

    def _validate_only(self, checkpoint: Checkpoint | None) -> RunResult:
        """--training False: validates the newest checkpoint; the training files of the run stay unchanged."""
        assert self.assembly.evaluate is not None
        if checkpoint is None:
            self.reporter.warn("there is no checkpoint, so untrained initial weights are validated.")
        with (
            self.assembly.program.weights_to_measure(),
            self.reporter.showing("validating", total=self.assembly.evaluate.samples),
        ):
            found = self.assembly.evaluate(regions=True, on_batch=self.reporter.progress_if_due)
        self._measured_program = in_one_piece(self.assembly.program)
        metrics = found.as_metrics()
        update = 0 if checkpoint is None else checkpoint.update
        numbers = [f"validation_{name}: {value:.4f}" for name, value in plain_numbers(metrics).items()]
        first = "  ".join([f"update {update}", *numbers])
        self.reporter.result("\n    ".join([first, *score_lines(metrics)]))
        row = {"split": "validation", "update": update, **metrics}
        write_json(self.directory.path / "evaluation-validation.json", {"evaluations": [row]})
        assert self.data.validation is not None
        names = self.data.spec.class_names
        write_evaluation(self.directory, found, source=self.data.validation, names=names, split="validation")
        return self._result("validated", update, metrics)

    def _result(
        self, status: str, updates: int, metrics: dict[str, Any], *, exit_status: int = 0
    ) -> RunResult:
        # 16-bit weights become float32, so that a caller can use the model like any other.
        widen_weights(self._measured_program.model)
        return RunResult(
            directory=self.directory.path,
            status=status,
            updates=updates,
            metrics=metrics,
            model=self._measured_program.model,
            exit_status=exit_status,
        )


def _metrics_so_far(loop: RunLoop) -> dict[str, Any]:
    """The latest validation of a stopped run, possibly from before it was continued."""
    if loop.validations.last is not None:
        return {"validation": loop.validations.last.as_metrics(), "best": loop.validations.best.as_json()}
    events = [
        entry for entry in read_metrics(loop.context.directory.metrics) if entry["event"] == "validation"
    ]
    if not events:
        return {}
    validation = {name: value for name, value in events[-1].items() if name not in OF_EVENTS}
    return {"validation": validation, "best": loop.validations.best.as_json()}


def _elapsed_so_far(entries: list[dict[str, Any]]) -> float:
    return max((float(entry.get("elapsed_seconds", 0.0)) for entry in entries), default=0.0)
