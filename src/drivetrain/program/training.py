"""The training program of one device: everything that happens between two host events."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from drivetrain.core.errors import RunFailedError
from drivetrain.data.feeds.feed import Feed
from drivetrain.data.order import SampleOrder
from drivetrain.devices.compilation import Compilable, CompiledParts
from drivetrain.devices.device import Device
from drivetrain.layers.batch_norm import BatchNormOwner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.float_watch import FloatWatch
from drivetrain.models.half_weights import widened
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.optimiser import Optimiser
from drivetrain.optim.schedule import LearningRate
from drivetrain.passes.forward import Forward, Precision
from drivetrain.passes.gradient_sum import GradientSum
from drivetrain.passes.loss_scale import DynamicLossScale
from drivetrain.passes.update_batches import NumberedBatch, UpdateBatches
from drivetrain.passes.whole_model import Passes, PlainPasses
from drivetrain.pipeline.runtime.placed_stages import PlacedStages
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.records import UpdateRecords
from drivetrain.program.stop_votes import StopVotes
from drivetrain.ranks.replica_group import ALL_ALONE, ALONE, RankGroups, ReplicaGroup
from drivetrain.schedules.observer import Observer, Part, observed_part
from drivetrain.tasks.task import Task

# What happens to the summed gradient before the optimiser sees it.


@torch.no_grad()
def add_l2_(gradients: Tensor, values: Tensor, *, factor: float) -> None:
    """Adds the gradient of factor/2 x the weights' squared length."""
    gradients.add_(values, alpha=factor)


@torch.no_grad()
def are_finite(values: Tensor) -> Tensor:
    """Whether all numbers of a vector are finite, without a second vector on the way."""
    if not values.numel():
        return torch.ones((), dtype=torch.bool, device=values.device)
    return torch.isfinite(torch.stack(torch.aminmax(values))).all()


@torch.no_grad()
def clip_norm_(gradients: Tensor, *, longest: float, parts: ReplicaGroup = ALONE) -> None:
    """Shortens the whole gradient, of which `parts` hold a part each, to at most `longest`.

    Nothing is fetched from the device.
    """
    norm = torch.linalg.vector_norm(gradients)
    if parts.size > 1:
        square = norm.double().square_() if gradients.device.type == "cpu" else norm.square()
        parts.sum_(square)
        norm = square.sqrt().to(gradients.dtype)
    gradients.mul_((longest / (norm + 1e-6)).clamp_(max=1.0))


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRules:
    """What is done to the gradient between the backward passes and the optimiser.

    `loss_scaling` is the fixed factor that it was multiplied by.
    """

    loss_scaling: float = 0.0
    l2_regularization: float = 0.0
    clip_norm: float | None = None

    @property
    def advice_on_overflow(self) -> str:
        """What may help where numbers have become too large."""
        if self.loss_scaling > 1:
            return "try a smaller --loss-scaling, --loss-scaling dynamic, or a lower --learning-rate"
        return "try a lower --learning-rate or --clip-norm 1"


class Capture(Protocol):
    """What runs updates in a program's place: recorded once, replayed from then on."""

    @property
    def status(self) -> str:
        """Whether updates are captured, in words."""
        ...

    def run(self, update: int) -> None:
        """One update, replayed where its kind has been recorded."""
        ...

    def forget(self) -> None:
        """Records anew from now on, as what an update does has changed."""
        ...

    def release(self) -> None:
        """Gives back the memory of all recordings."""
        ...


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
    loss_scale: DynamicLossScale | None = None
    float_watch: FloatWatch | None = None
    wants_stop: Callable[[], bool] = _never
    compiled: CompiledParts = field(default_factory=CompiledParts)
    move_weights: Compilable[[Tensor], None] = field(init=False)
    capture: Capture | None = None
    capture_reason: str = "not asked for"
    _observer: Observer | None = None
    _rates: Tensor | None = None

    def __post_init__(self) -> None:
        self.move_weights = Compilable(self._move_weights, what="the optimiser", whole=True)

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

    @property
    def capture_status(self) -> str:
        """Whether updates are recorded once and replayed, in words."""
        if self.capture is None:
            return f"not captured: {self.capture_reason}"
        return self.capture.status

    def run_update(self, update: int) -> None:
        """All micro-batches of one update, then the weights, then the statistics."""
        if self.capture is not None and self._observer is None:
            self.capture.run(update)
            return
        with observed_part(self._observer, update, Part.PASSES):
            self.context.update.fill_(update)
            self._begin_gradient()
            loss, score = self.passes.run(update)
        if self.group.size > 1:
            with observed_part(self._observer, update, Part.GRADIENT_SUM):
                if self.groups.devices.size > 1:
                    loss, score = self._add_up_stages(update, loss, score)
                else:
                    loss, score = self._add_up(loss, score)
        with observed_part(self._observer, update, Part.OPTIMISER):
            self._move(loss, score)

    def _rate(self) -> Tensor:
        """The learning rate of the update under way; all of them are computed at once, at the first."""
        if self._rates is None:
            updates = torch.arange(len(self.records), device=self.device.torch_device)
            self._rates = self.learning_rate.on_device(updates)
        return self._rates.index_select(0, self.context.update.view(1)).view(())

    def _move(self, loss: Tensor, score: Tensor) -> None:
        """The weights by their gradient, the statistics and the averages; the update's numbers are kept."""
        if self.float_watch is not None:
            self.float_watch.finish_update()
        rate = self._rate()
        self.move_weights(rate)
        if self.group.size == 1:
            self.batch_norms.commit()
        skips = None
        if self.loss_scale is not None:
            skips = self.loss_scale.skips
            self.batch_norms.undo_where(skips)
        if self.average is not None:
            self.average.move(self.context.update, wide_dtype=self.device.wide_dtype, skips=skips)
        numbers = {"loss": loss, self.task.metric: score, "learning_rate": rate}
        if self.loss_scale is not None:
            numbers |= {"loss_scale": self.loss_scale.scale, "skipped": self.loss_scale.skips}
        self.records.write(self.context.update, numbers)
        if self.loss_scale is not None:
            self.loss_scale.move()
        if self.float_watch is not None:
            self.float_watch.finish_move(self.model)

    def _move_weights(self, rate: Tensor) -> None:
        self.optimiser.step(
            values=self.parameters.values,
            gradients=self._finished_gradient(),
            rate=rate,
            update=self.context.update,
        )

    def run_batches(self, batches: Iterable[NumberedBatch], *, share: float, seeded_for: int | None) -> None:
        """An update of given micro-batches, where one rank has the whole model: what can be captured."""
        assert isinstance(self.passes, PlainPasses), "only a model in one piece"
        self._begin_gradient()
        self._move(*self.passes.run_batches(batches, share=share, seeded_for=seeded_for))

    def _begin_gradient(self) -> None:
        if self.passes.adds_to_zeros:
            self.parameters.gradients.zero_()

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
        is_bad = ~are_finite(self.parameters.gradients)
        own = torch.stack([loss, score]).to(self.device.wide_dtype)
        flags = torch.stack([own.new_tensor(float(self.wants_stop())), is_bad.to(own)])
        sums = torch.cat([own, flags])
        self.group.sum_(sums)
        self.stop_votes.count(sums[2])
        if self.loss_scale is not None:
            self.loss_scale.judge(sums[3] > 0)
            self._commit_statistics()
            return sums[0], sums[1]
        if self.device.is_cpu and sums[3]:
            raise RunFailedError(
                f"the gradient is not finite at update {update + 1}, on {int(sums[3])} of {self.group.size} "
                f"ranks; no weight was moved; {self.rules.advice_on_overflow}."
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

    def _finished_gradient(self) -> Tensor:
        """The gradient as the optimiser takes it; that of 16-bit weights becomes a float32 one."""
        gradients = widened(self.parameters.gradients)
        if self.loss_scale is not None:
            if self.groups.devices.size == 1:
                self.loss_scale.judge(~torch.isfinite(gradients).all())
            self.loss_scale.take_out_(gradients)
        elif self.rules.loss_scaling:
            gradients.div_(self.rules.loss_scaling)
        if self.rules.l2_regularization:
            add_l2_(gradients, self.parameters.values, factor=self.rules.l2_regularization)
        if self.rules.clip_norm is not None:
            clip_norm_(gradients, longest=self.rules.clip_norm, parts=self.groups.devices)
        return gradients
