"""The training program of one device: everything that happens between two host events."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from drivetrain.cluster.devices import Device
from drivetrain.cluster.rank_groups import ALL_ALONE, RankGroups
from drivetrain.cluster.replica_group import ReplicaGroup
from drivetrain.data.feed import Feed
from drivetrain.data.order import SampleOrder
from drivetrain.errors import RunFailedError
from drivetrain.optim.optimiser import Optimiser
from drivetrain.optim.schedule import LearningRate
from drivetrain.pipeline.build import PlacedStages
from drivetrain.pipeline.observer import Observer, Part, observed_part
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.batch_norm import BatchNormOwner
from drivetrain.program.context import UpdateContext
from drivetrain.program.flat_parameters import FlatParameters
from drivetrain.program.forward import Forward, Precision
from drivetrain.program.gradient_sum import GradientSum
from drivetrain.program.gradients import add_l2_, clip_norm_
from drivetrain.program.passes import Passes
from drivetrain.program.records import UpdateRecords
from drivetrain.program.stop_votes import StopVotes
from drivetrain.program.update_batches import UpdateBatches
from drivetrain.tasks.task import Task


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRules:
    """What is done to the gradient between the backward passes and the optimiser.

    `loss_scaling` is what it was multiplied by.
    """

    loss_scaling: float = 0.0
    l2_regularization: float = 0.0
    clip_norm: float | None = None


@dataclass(slots=True, kw_only=True)
class TrainingProgram:
    """One weight update after the other, without fetching anything from the device.

    `forward` takes images to logits without training, over all stages.
    """

    model: nn.Module
    passes: Passes
    forward: Forward
    batches: UpdateBatches
    precision: Precision
    parameters: FlatParameters
    batch_norms: BatchNormOwner
    context: UpdateContext
    task: Task
    optimiser: Optimiser
    learning_rate: LearningRate
    rules: GradientRules
    records: UpdateRecords
    device: Device
    gradient_sum: GradientSum
    stop_votes: StopVotes
    groups: RankGroups = ALL_ALONE
    stages: PlacedStages | None = None
    average: WeightAverage | None = None
    wants_stop: Callable[[], bool] = _never
    _observer: Observer | None = None

    @property
    def group(self) -> ReplicaGroup:
        """All ranks of the training."""
        return self.groups.world

    @property
    def feed(self) -> Feed:
        """Where the micro-batches come from."""
        return self.batches.feed

    @property
    def order(self) -> SampleOrder:
        """Which sample is where."""
        return self.batches.order

    @contextmanager
    def weights_to_measure(self) -> Iterator[None]:
        """The averaged weights where there are some, for validation and pictures."""
        if self.average is None:
            yield
            return
        with self.average.in_place():
            yield

    def watch(self, observer: Observer | None) -> None:
        """From now on an observer, or nobody, looks on at every update."""
        self._observer = observer
        self.passes.watch(observer)

    def execute(self, first: int, last: int, *, goes_on: Callable[[int], bool]) -> int:
        """Runs updates first..last-1, or fewer when `goes_on` says so; returns the next update."""
        self.model.train()
        for update in range(first, last):
            self.run_update(update)
            if not goes_on(update + 1):
                return update + 1
        return last

    def run_update(self, update: int) -> None:
        """All micro-batches of one update, then the weights, then the statistics."""
        with observed_part(self._observer, update, Part.PASSES):
            self.context.update.fill_(update)
            self.parameters.gradients.zero_()
            loss, score = self.passes.run(update)
        if self.group.size > 1:
            with observed_part(self._observer, update, Part.GRADIENT_SUM):
                if self.groups.devices.size > 1:
                    loss, score = self._add_up_stages(update, loss, score)
                else:
                    loss, score = self._add_up(loss, score)
        with observed_part(self._observer, update, Part.OPTIMISER):
            self._move(update, loss, score)

    def _move(self, update: int, loss: Tensor, score: Tensor) -> None:
        """The weights by their gradient, the statistics and the averages; the update's numbers are kept."""
        self._finish_gradient()
        rate = self.learning_rate.on_device(self.context.update)
        self.optimiser.step(
            values=self.parameters.values,
            gradients=self.parameters.gradients,
            rate=rate,
            update=self.context.update,
        )
        if self.group.size == 1:
            self.batch_norms.commit()
        if self.average is not None:
            self.average.move(self.context.update, wide_dtype=self.device.wide_dtype)
        self.records.write(update, {"loss": loss, self.task.metric: score, "learning_rate": rate})

    def _add_up(self, loss: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient, and the few numbers beside it, of all replicas together."""
        self.gradient_sum.finish()
        own = torch.stack([loss, score]).to(self.device.wide_dtype)
        vote = own.new_full((1,), float(self.wants_stop()))
        sums = torch.cat([own, vote, self.batch_norms.report_sums()])
        self.group.sum_(sums)
        self.batch_norms.commit_sums(sums[3:])
        self.stop_votes.count(sums[2])
        return sums[0], sums[1]

    def _add_up_stages(self, update: int, loss: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
        """As `_add_up`, where each rank has the gradient of some stages: all learn of a bad one at once."""
        self.gradient_sum.finish()
        is_bad = ~torch.isfinite(self.parameters.gradients).all()
        own = torch.stack([loss, score]).to(self.device.wide_dtype)
        flags = torch.stack([own.new_tensor(float(self.wants_stop())), is_bad.to(own)])
        sums = torch.cat([own, flags])
        self.group.sum_(sums)
        self.stop_votes.count(sums[2])
        if self.device.is_cpu and sums[3]:
            raise RunFailedError(
                f"the gradient is not finite at update {update}, on {int(sums[3])} of {self.group.size} "
                "ranks; no weight was moved; try a lower --learning-rate or --clip-norm 1."
            )
        self._commit_statistics()
        # An accelerator is not waited for: nothing moves far, and the next host event sees the loss.
        self.parameters.gradients.masked_fill_(sums[3] > 0, 0.0)
        return torch.where(sums[3] > 0, torch.nan, sums[0]), sums[1]

    def _commit_statistics(self) -> None:
        # Stages without a batch norm have nothing to add up, and it might lie on another device.
        if self.groups.replicas.size == 1 or not self.batch_norms.layers:
            self.batch_norms.commit()
            return
        sums = self.batch_norms.report_sums()
        self.groups.replicas.sum_(sums)
        self.batch_norms.commit_sums(sums)

    def _finish_gradient(self) -> None:
        gradients = self.parameters.gradients
        if self.rules.loss_scaling:
            gradients.div_(self.rules.loss_scaling)
        if self.rules.l2_regularization:
            add_l2_(gradients, self.parameters.values, factor=self.rules.l2_regularization)
        if self.rules.clip_norm is not None:
            clip_norm_(gradients, longest=self.rules.clip_norm, parts=self.groups.devices)
