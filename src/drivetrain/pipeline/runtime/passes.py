"""The passes of an update over a model that is cut into stages."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from drivetrain.devices.device import Device
from drivetrain.passes.update_batches import UpdateBatches
from drivetrain.passes.whole_model import added_up
from drivetrain.pipeline.runtime.executor import Executor, UpdateWork
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.schedules.actions import Edge, Schedule
from drivetrain.schedules.observer import Observer
from drivetrain.schedules.traffic import Traffic, messages

__all__ = ["PipelinePasses"]


@dataclass(slots=True, kw_only=True)
class PipelinePasses:
    """Runs the micro-batches of an update through the stages, in the order of a schedule.

    `schedule_of` gives the table for a number of micro-batches: the last update of a padded epoch has fewer.
    Where another rank has the last stage, loss and score are 0 here.
    """

    executor: Executor
    last: StageRunner | None
    batches: UpdateBatches
    edges: tuple[Edge, ...]
    schedule_of: Callable[[int], Schedule]
    device: Device
    _tables: dict[int, tuple[Schedule, Traffic]] = field(default_factory=dict)

    @property
    def adds_to_zeros(self) -> bool:
        return True

    @property
    def wait_seconds(self) -> float | None:
        """An accelerator waits by itself, in its own order, and is not asked how long."""
        return self.executor.channel.wait_seconds if self.device.is_cpu else None

    def watch(self, observer: Observer | None) -> None:
        self.executor.observer = observer

    def run(self, update: int) -> tuple[Tensor, Tensor]:
        micro_batches = len(self.batches.numbers(update))
        if micro_batches:
            schedule, traffic = self._table(micro_batches)
            work = UpdateWork(
                update=update,
                share=self.batches.share(update),
                schedule=schedule,
                traffic=traffic,
                batches=self.batches.of(update),
            )
            self.executor.run(work)
        return added_up(self._losses(), device=self.device)

    def _table(self, micro_batches: int) -> tuple[Schedule, Traffic]:
        if micro_batches not in self._tables:
            schedule = self.schedule_of(micro_batches)
            self._tables[micro_batches] = (schedule, messages(schedule, self.edges))
        return self._tables[micro_batches]

    def _losses(self) -> list[tuple[Tensor, Tensor]]:
        if self.last is None:
            return []
        losses = [self.last.losses[micro_batch] for micro_batch in sorted(self.last.losses)]
        self.last.losses.clear()
        return losses
