"""What all parts of the training loop share: program, directory, logs, clock and stop request."""

from dataclasses import dataclass, field

from drivetrain.console.reporter import Reporter
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.plan.epochs import EpochPlan
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.schema import Recipe
from drivetrain.run.loop.clocks import RunClock
from drivetrain.run.reporting.heartbeats import Pulse
from drivetrain.run.reporting.loggers import EventLog
from drivetrain.run.stopping import StopRequest, TimeLimit
from drivetrain.store.directory import RunDirectory

__all__ = ["RunContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What all parts of the training loop share."""

    recipe: Recipe
    program: TrainingProgram
    epochs: EpochPlan
    directory: RunDirectory
    log: EventLog
    reporter: Reporter
    stop: StopRequest
    clock: RunClock
    limit: TimeLimit | None = None
    outline: RunOutline | None = None
    pulse: Pulse = field(default_factory=Pulse)

    @property
    def is_alone(self) -> bool:
        """Whether one process is the whole training."""
        return self.program.group.size == 1

    @property
    def stops(self) -> bool:
        """Whether the run stops; several ranks vote, so that all stop after the same update."""
        return self.stop.made if self.is_alone else self.program.rank_sums.stop_votes.agreed

    def samples_until(self, update: int) -> int:
        """The samples of all updates before this one."""
        return self.program.order.samples_until(update)

    def position(self, update: int) -> dict[str, float]:
        """Elapsed seconds, epoch and samples after `update` updates, as every event has them."""
        return {
            "elapsed_seconds": round(self.clock.elapsed_s, 3),
            "epoch": self.epochs.epoch_of(update - 1) + 1,
            "samples": self.samples_until(update),
        }
