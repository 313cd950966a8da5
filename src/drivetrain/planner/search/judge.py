"""Rates single layouts as a plan does: memory with the stages built, and the time of their own update."""

from dataclasses import dataclass, replace
from functools import cached_property

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.plan.stage_report import RunMemory, memory_of_run
from drivetrain.plan.training_plan import PlannedRun, plan_training
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.planner.devices.target import find_target
from drivetrain.planner.estimate import Measure, UpdateEstimate, estimate_run
from drivetrain.planner.search.exact import exact_peaks, names_of, outline_of_layout
from drivetrain.planner.search.layout import Evaluated, Layout
from drivetrain.planner.search.options import layout_fields, resets
from drivetrain.planner.search.subject import Subject
from drivetrain.schedules.actions import ScheduleError

__all__ = ["Judge", "PlanJudge"]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Knows the memory of layouts alone; `overhead_bytes` is what libraries take on every device."""

    subject: Subject
    overhead_bytes: int = 0

    @property
    def times_all(self) -> bool:
        """Whether timing a layout is quick enough to do it for all."""
        return False

    def peaks(self, layout: Layout) -> tuple[int, ...] | None:
        """The peak memory of each device of a replica; None if the layout cannot run."""
        peaks = exact_peaks(self.subject, layout)
        return None if peaks is None else tuple(peak + self.overhead_bytes for peak in peaks)

    def timed(self, found: Evaluated) -> Evaluated:
        """The layout with the time that its plan would say; the search's own where a plan says none."""
        return found


@dataclass(frozen=True, kw_only=True)
class PlanJudge(Judge):
    """Plans each layout of the subject.

    With `own_cores`, processes on a CPU do not share its cores: they stand for devices elsewhere.
    """

    described: DescribedDevice | None
    memory_limit: int | None
    measure: Measure
    own_cores: bool
    reporter: Reporter

    @cached_property
    def _known(self) -> dict[Layout, tuple[PlannedRun, RunMemory] | None]:
        return {}

    @property
    def times_all(self) -> bool:
        return self.described is not None or self.measure == "off"

    def peaks(self, layout: Layout) -> tuple[int, ...] | None:
        estimate = self._estimate(layout, measure="off")
        if estimate is None or not estimate.devices:
            return None
        return tuple(device.peak_bytes for device in estimate.devices)

    def timed(self, found: Evaluated) -> Evaluated:
        estimate = self._estimate(found.layout, measure=self.measure)
        if estimate is None or estimate.seconds_per_update is None:
            return found
        bubble = 0.0 if estimate.stages is None else max(0.0, estimate.stages.bubble)
        return replace(found, seconds=estimate.seconds_per_update, bubble=bubble)

    @cached_property
    def _estimates(self) -> dict[tuple[Layout, bool], UpdateEstimate | None]:
        return {}

    def _estimate(self, layout: Layout, *, measure: Measure) -> UpdateEstimate | None:
        key = (layout, self.described is None and measure != "off")
        if key not in self._estimates:
            self._estimates[key] = self._new_estimate(layout, measure=measure)
        return self._estimates[key]

    def _new_estimate(self, layout: Layout, *, measure: Measure) -> UpdateEstimate | None:
        if layout not in self._known:
            self._known[layout] = self._look_into(layout)
        known = self._known[layout]
        if known is None:
            return None
        planned, memory = known
        try:
            target = find_target(
                planned.recipe, described=self.described, memory_limit_bytes=self.memory_limit
            )
        except BadInputError:
            # More devices than the file describes.
            return None
        if self.own_cores:
            target = replace(target, sharing=1.0)
        return estimate_run(planned, memory, target=target, measure=measure, reporter=self.reporter)

    def _look_into(self, layout: Layout) -> tuple[PlannedRun, RunMemory] | None:
        fields = layout_fields(self.subject.recipe, layout, names=names_of(self.subject, layout))
        recipe = self.subject.recipe.model_copy(update=resets() | fields)
        outline = outline_of_layout(self.subject, layout)
        if outline is None:
            return None
        try:
            training = plan_training(
                recipe, samples=self.subject.planned.training.epochs.samples, warns_of_skipped=False
            )
        except (BadInputError, ScheduleError):
            return None
        planned = replace(
            self.subject.planned,
            resolved=replace(self.subject.planned.resolved, recipe=recipe),
            training=training,
            outline=outline,
        )
        return planned, memory_of_run(outline, finds_savings=False)
