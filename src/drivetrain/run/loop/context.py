"""What everybody in the loop of a run works with."""

from dataclasses import dataclass

from drivetrain.console.reporter import Reporter
from drivetrain.plan.epochs import EpochPlan
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.schema import Recipe
from drivetrain.run.loop.clocks import RunClock
from drivetrain.run.reporting.loggers import EventLog
from drivetrain.run.stopping import StopRequest, TimeLimit
from drivetrain.store.directory import RunDirectory

__all__ = ["RunContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """A run as its loop finds it: what is trained, where it is kept and who is told."""

    recipe: Recipe
    program: TrainingProgram
    epochs: EpochPlan
    directory: RunDirectory
    log: EventLog
    reporter: Reporter
    stop: StopRequest
    clock: RunClock
    limit: TimeLimit | None = None

    @property
    def is_alone(self) -> bool:
        """Whether one process is the whole training."""
        return self.program.group.size == 1

    @property
    def stops(self) -> bool:
        """Whether the run was asked to stop; several replicas agree on the update at which they do."""
        return self.stop.made if self.is_alone else self.program.rank_sums.stop_votes.agreed

    def samples_until(self, update: int) -> int:
        """The samples of all updates before this one."""
        return self.program.order.samples_until(update)

    def position(self, update: int) -> dict[str, float]:
        """Where the run is after so many updates, as its events tell it."""
        return {
            "elapsed_seconds": round(self.clock.elapsed_s, 3),
            "epoch": self.epochs.epoch_of(update - 1) + 1,
            "samples": self.samples_until(update),
        }
