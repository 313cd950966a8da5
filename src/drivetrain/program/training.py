"""The training program of one device: everything that happens between two host events."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from drivetrain.cluster.devices import Device
from drivetrain.cluster.replica_group import ReplicaGroup
from drivetrain.data.feed import Feed, MicroBatch
from drivetrain.data.order import PADDING, SampleOrder
from drivetrain.optim.optimiser import Optimiser
from drivetrain.optim.schedule import LearningRate
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.batch_norm import BatchNormOwner
from drivetrain.program.context import UpdateContext
from drivetrain.program.flat_parameters import FlatParameters
from drivetrain.program.forward import Forward, Precision
from drivetrain.program.gradient_sum import GradientSum
from drivetrain.program.gradients import add_l2_, clip_norm_
from drivetrain.program.randomness import stream_key
from drivetrain.program.records import UpdateRecords
from drivetrain.program.stop_votes import StopVotes
from drivetrain.tasks.classification import ClassificationTask
from drivetrain.tasks.task import Task


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRules:
    """What is done to the gradient between the backward passes and the optimiser."""

    loss_scaling: float = 0.0
    l2_regularization: float = 0.0
    clip_norm: float | None = None


@dataclass(slots=True, kw_only=True)
class TrainingProgram:
    """One weight update after the other, without fetching anything from the device."""

    model: nn.Module
    forward: Forward
    precision: Precision
    parameters: FlatParameters
    batch_norms: BatchNormOwner
    context: UpdateContext
    task: Task
    optimiser: Optimiser
    learning_rate: LearningRate
    rules: GradientRules
    feed: Feed
    order: SampleOrder
    records: UpdateRecords
    device: Device
    seed: int
    accumulation: int
    norm_group_size: int
    group: ReplicaGroup
    gradient_sum: GradientSum
    stop_votes: StopVotes
    average: WeightAverage | None = None
    wants_stop: Callable[[], bool] = _never

    @contextmanager
    def weights_to_measure(self) -> Iterator[None]:
        """The averaged weights where there are some, for validation and pictures."""
        if self.average is None:
            yield
            return
        with self.average.in_place():
            yield

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
        self.context.update.fill_(update)
        self.parameters.gradients.zero_()
        loss, score = self._accumulate(update)
        if self.group.size > 1:
            loss, score = self._add_up(loss, score)
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

    def _accumulate(self, update: int) -> tuple[Tensor, Tensor]:
        """Adds up the mean gradient over the global batch; returns its mean loss and score."""
        real_samples = self.order.real_samples(update)
        has_padding = real_samples < self.order.global_batch
        samples = self.order.indices(update) if has_padding else None
        share = 1.0 / real_samples
        parts: list[tuple[Tensor, Tensor]] = []
        for accumulation_index, batch in enumerate(self.feed.micro_batches(update)):
            index = accumulation_index * self.group.size + self.group.rank
            if samples is not None and self._is_skipped(samples, index, micro=len(batch.slots)):
                continue
            self.device.seed_generators(stream_key(self.seed, "model", update, index))
            if accumulation_index + 1 == self.accumulation:
                self.gradient_sum.begin_last_pass()
            parts.append(self._micro_batch(batch, share=share))
        if len(parts) == 1:
            return parts[0]
        if not parts:
            nothing = torch.zeros((), device=self.device.torch_device)
            return nothing, nothing
        return torch.stack([part[0] for part in parts]).sum(), torch.stack([part[1] for part in parts]).sum()

    def _is_skipped(self, samples: NDArray[np.int64], index: int, *, micro: int) -> bool:
        """Whether nobody who normalises together with this micro-batch has a sample in it.

        The gradient of padding is 0, but batch norm would take its statistics for those of samples.
        """
        first = index // self.norm_group_size * self.norm_group_size
        return bool((samples[first * micro : (first + self.norm_group_size) * micro] == PADDING).all())

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

    def _micro_batch(self, batch: MicroBatch, *, share: float) -> tuple[Tensor, Tensor]:
        self.context.begin_forward(batch.slots)
        logits = self.forward(batch.images)
        losses, scores = self._losses_and_scores(logits, batch)
        if batch.weights is not None:
            losses, scores = losses * batch.weights, scores * batch.weights
        loss = losses.sum() * share
        (loss * self.rules.loss_scaling if self.rules.loss_scaling else loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), scores.sum() * share

    def _losses_and_scores(self, logits: Tensor, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        if batch.mix is None or batch.partner_labels is None:
            return self.task.losses_and_scores(logits, batch.labels)
        assert isinstance(self.task, ClassificationTask), "only whole labels can be mixed"
        losses = self.task.mixed_losses(
            logits, batch.labels, partners=batch.partner_labels, own_share=batch.mix
        )
        return losses, self.task.correct(logits, batch.labels).to(losses.dtype)

    def _finish_gradient(self) -> None:
        gradients = self.parameters.gradients
        if self.rules.loss_scaling:
            gradients.div_(self.rules.loss_scaling)
        if self.rules.l2_regularization:
            add_l2_(gradients, self.parameters.values, factor=self.rules.l2_regularization)
        if self.rules.clip_norm is not None:
            clip_norm_(gradients, longest=self.rules.clip_norm)
