"""Training numbers of a run: logged as events, and shown in the progress line between logs."""

from dataclasses import dataclass

import numpy as np

from drivetrain.catalogue.input_kinds import plural_of
from drivetrain.catalogue.metrics import brief_metric
from drivetrain.console.figures import speed_text
from drivetrain.models.input_form import input_kind_of_model
from drivetrain.run.loop.clocks import UpdateTimes
from drivetrain.run.loop.context import RunContext
from drivetrain.run.reporting.loss_scale_report import scale_values

__all__ = ["TrainingLog"]


@dataclass(slots=True, kw_only=True)
class TrainingLog:
    """Loss, score and speed between two logs, which are `log_updates` updates apart."""

    context: RunContext
    times: UpdateTimes
    log_updates: int
    _mark: tuple[int, float] = (0, 0.0)
    _last_logged: str = ""

    def previous(self, update: int) -> int:
        """The update of the last log before `update`."""
        return (update - 1) // self.log_updates * self.log_updates

    def write(self, update: int, *, compile_s: float) -> None:
        """Writes a training event; the first one includes the time of the first update and of compiling."""
        first, records = self.previous(update), self.context.program.records
        values = self._means(first, update)
        rate = float(records.read("learning_rate", update - 1, update)[0])
        is_first_log = self._mark[1] == 0.0
        execution_s = self.times.execution_s
        speed = self.times.speed(update, execution_s, since=None if is_first_log else self._mark)
        extra = {"compile_seconds": compile_s} if is_first_log else {}
        self._mark = (update, execution_s)
        self._feel(values, images_per_second=speed)
        self._last_logged = self._described(values, images_per_second=speed)
        values |= {"learning_rate": rate, "images_per_second": speed, **extra}
        values |= scale_values(records, first, update)
        self.context.log.training(update, **self.context.position(update), **values)
        self.context.pulse.news.set()

    def newest(self, finished: int) -> str:
        """Text of the progress line: on a CPU the newest numbers; on an accelerator those of the last log.

        Reading a number from an accelerator would synchronise it.
        """
        if not self.context.program.device.is_cpu:
            return self._last_logged
        means, speed = self._means(finished - 1, finished), self.times.speed_now(finished)
        self._feel(means, images_per_second=speed)
        return self._described(means, images_per_second=speed)

    def _feel(self, means: dict[str, float], *, images_per_second: float) -> None:
        """Hands the numbers to the heartbeats of this rank."""
        pulse, metric = self.context.pulse, self.context.program.task.metric
        pulse.loss, pulse.metric_name, pulse.metric = means["loss"], metric, means[metric]
        pulse.images_per_second = images_per_second

    def _means(self, first: int, last: int) -> dict[str, float]:
        """Mean loss and score of updates first..last-1."""
        records = self.context.program.records
        names = ("loss", self.context.program.task.metric)
        return {name: float(np.nanmean(records.read(name, first, last))) for name in names}

    def _described(self, means: dict[str, float], *, images_per_second: float) -> str:
        """Speed and score first: a narrow terminal has no room for what follows."""
        metric = self.context.program.task.metric
        # Without the words in brackets, which say over what a mean is taken.
        words = brief_metric(metric).partition(" (")[0]
        unit = plural_of(input_kind_of_model(self.context.program.model))
        speed = f"{unit}/s: {speed_text(images_per_second)}"
        return f"{speed}  {words}: {means[metric]:.4f}  loss: {means['loss']:.4f}"
