"""One weight update from top to bottom (`run_update`), and all updates between two host events."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn

from drivetrain.data.feeds.feed import Feed
from drivetrain.data.order import SampleOrder
from drivetrain.devices.compilation import CompiledParts
from drivetrain.devices.device import Device
from drivetrain.layers.batch_norm import BatchNormOwner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.places import DrawPlaces
from drivetrain.layers.float_watch import FloatWatch
from drivetrain.layers.moving_state import Homes
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.passes.forward import Forward, Precision
from drivetrain.passes.update_batches import NumberedBatch, UpdateBatches
from drivetrain.passes.whole_model import Passes, PlainPasses
from drivetrain.pipeline.runtime.placed_stages import PlacedStages
from drivetrain.program.move_weights import WeightMover
from drivetrain.program.rank_sums import RankSums
from drivetrain.program.records import UpdateRecords
from drivetrain.ranks.replica_group import RankGroups, ReplicaGroup
from drivetrain.schedules.observer import Observer, Part, observed_part
from drivetrain.tasks.task import Task

__all__ = ["Capture", "TrainingProgram"]


class Capture(Protocol):
    """Runs the updates of a program by recording them once and replaying them."""

    @property
    def status(self) -> str:
        """Whether updates are captured, in words."""
        ...

    def run(self, update: int) -> None:
        """Runs one update, replayed if its kind was recorded."""
        ...

    def forget(self) -> None:
        """Drops all recordings: call it after the work of an update has changed."""
        ...

    def release(self) -> None:
        """Frees the memory of all recordings."""
        ...


@dataclass(slots=True, kw_only=True)
class TrainingProgram:
    """Runs weight updates without synchronising the device with the CPU.

    `forward` is the model without training, from images to logits, through all stages.
    """

    model: nn.Module
    passes: Passes
    forward: Forward
    batches: UpdateBatches
    precision: Precision
    batch_norms: BatchNormOwner
    context: UpdateContext
    draws: DrawPlaces
    task: Task
    mover: WeightMover
    rank_sums: RankSums
    records: UpdateRecords
    device: Device
    homes: Homes
    stages: PlacedStages | None = None
    float_watch: FloatWatch | None = None
    compiled: CompiledParts = field(default_factory=CompiledParts)
    capture: Capture | None = None
    capture_reason: str = "not requested"
    _observer: Observer | None = None

    @property
    def parameters(self) -> FlatParameters:
        """The trained weights and their gradients."""
        return self.mover.parameters

    @property
    def groups(self) -> RankGroups:
        """The groups of ranks that this one belongs to."""
        return self.rank_sums.groups

    @property
    def group(self) -> ReplicaGroup:
        """All ranks of the training."""
        return self.rank_sums.groups.world

    @property
    def feed(self) -> Feed:
        """Where the micro-batches come from."""
        return self.batches.feed

    @property
    def order(self) -> SampleOrder:
        """The order of the training samples."""
        return self.batches.order

    @contextmanager
    def weights_to_measure(self) -> Iterator[None]:
        """Puts the averaged weights into the model, if there are any, for validation and pictures."""
        if self.mover.average is None:
            yield
            return
        with self.mover.average.in_place():
            yield

    def watch(self, observer: Observer | None) -> None:
        """Sets the observer of updates; None removes it."""
        self._observer = observer
        self.passes.watch(observer)

    def execute(self, first: int, last: int, *, goes_on: Callable[[int], bool]) -> int:
        """Runs updates first..last-1, or fewer if `goes_on` returns False; returns the next update."""
        self.model.train()
        for update in range(first, last):
            self.run_update(update)
            if not goes_on(update + 1):
                return update + 1
        return last

    @property
    def capture_status(self) -> str:
        """Whether updates are recorded once and replayed, in words."""
        if self.capture is None:
            return f"not captured: {self.capture_reason}"
        return self.capture.status

    def run_update(self, update: int) -> None:
        """Runs one update: all micro-batches, the all-reduces, the optimiser step; never synchronises."""
        if self.capture is not None and self._observer is None:
            self.capture.run(update)
            return
        with observed_part(self._observer, update, Part.PASSES):
            self.context.update.fill_(update)
            self._begin_gradient()
            loss, score = self.passes.run(update)
            self.homes.settle()
        if self.group.size > 1:
            with observed_part(self._observer, update, Part.GRADIENT_SUM):
                loss, score = self.rank_sums.add_up(update, loss, score)
        with observed_part(self._observer, update, Part.OPTIMISER):
            self._move(loss, score)

    def _move(self, loss: Tensor, score: Tensor) -> None:
        """Updates weights, statistics and averages, and records the values of the update.

        The order matters. Whether an update is skipped is a flag on the device that the host never reads, so
        statistics are committed and then taken back where it is set. The loss scale changes last, after its
        value was recorded.
        """
        moving = self.mover
        moving.is_moving = True
        if self.float_watch is not None:
            self.float_watch.finish_update()
        rate = moving.rate(updates=len(self.records))
        moving.move_weights(rate)
        if self.group.size == 1:
            self.batch_norms.commit()
        if moving.skips is not None:
            self.batch_norms.undo_where(moving.skips)
        moving.move_average()
        numbers = {"loss": loss, self.task.metric: score, "learning_rate": rate, **moving.scale_numbers()}
        self.records.write(self.context.update, numbers)
        moving.move_scale()
        if self.float_watch is not None:
            self.float_watch.finish_move(self.model)

    def run_batches(self, batches: Iterable[NumberedBatch], *, share: float, seeded_for: int | None) -> None:
        """An update of given micro-batches on one rank with the whole model: the part that is captured."""
        assert isinstance(self.passes, PlainPasses), "only a model in one piece"
        self._begin_gradient()
        loss, score = self.passes.run_batches(batches, share=share, seeded_for=seeded_for)
        self.homes.settle()
        self._move(loss, score)

    def _begin_gradient(self) -> None:
        if self.passes.adds_to_zeros:
            self.mover.parameters.gradients.zero_()
