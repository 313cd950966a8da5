"""A training program over samples that a test holds in its hand."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.data.order import SampleOrder
from drivetrain.devices.device import Device
from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.facts import DrawFacts
from drivetrain.layers.draws.install import place_draws
from drivetrain.layers.moving_state import Homes
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.learning_rate import LearningRate, constant
from drivetrain.optim.rules import Sgd
from drivetrain.passes.forward import Precision
from drivetrain.passes.gradient_sum import GradientSum
from drivetrain.passes.model_step import LossHead, ModelStep
from drivetrain.passes.update_batches import UpdateBatches
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.program.gradient_rules import GradientRules
from drivetrain.program.move_weights import WeightMover
from drivetrain.program.rank_sums import RankSums
from drivetrain.program.records import UpdateRecords
from drivetrain.program.stop_votes import StopVotes
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ALONE, RankGroups, ReplicaGroup
from drivetrain.tasks.classification import ClassificationTask

CPU = torch.device("cpu")


class GivenFeed:
    """Feeds the same global batch at every update, cut into micro-batches."""

    data_seconds = transfer_seconds = 0.0

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        micro: int,
        weights: Tensor | None = None,
        group: ReplicaGroup = ALONE,
    ) -> None:
        self.batch = MicroBatch(images, labels, weights, torch.arange(len(labels)))
        self.micro = micro
        self.group = group

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:
        stride = self.micro * self.group.size
        for first in range(self.micro * self.group.rank, len(self.batch.labels), stride):
            part = slice(first, first + self.micro)
            weights = None if self.batch.weights is None else self.batch.weights[part]
            yield MicroBatch(
                self.batch.images[part], self.batch.labels[part], weights, self.batch.slots[part]
            )

    def close(self) -> None:
        pass


@dataclass
class SquaredError:
    """Mean squared error as a task, for the worked cases."""

    metric = "accuracy"

    def losses_and_scores(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        errors = (outputs.flatten() - targets).square()
        return errors, errors.detach()


def make_program(
    model: nn.Module,
    feed: GivenFeed,
    *,
    rate: float = 1.0,
    task: Any = None,
    rules: GradientRules | None = None,
    updates: int = 10,
    seed: int = 0,
    norm_group_size: int = 1,
    overlaps: bool = False,
    stable: bool = False,
) -> TrainingProgram:
    """The program of a plain SGD training on the CPU."""
    context = UpdateContext(CPU)
    device = Device(torch_device=CPU, reason="test")
    draws = place_draws(model, seed=seed, context=context, device=device, facts=DrawFacts())
    group = feed.group
    owner = install_batch_norm_owner(
        model, kept_share=0.97, group=group.parts_of(norm_group_size), stable=stable
    )
    parameters = FlatParameters(model)
    samples = len(feed.batch.labels)
    chosen = cast(ClassificationTask, task or ClassificationTask())
    rules = rules or GradientRules()
    batches = UpdateBatches(
        feed=feed,
        order=SampleOrder(
            seed=seed,
            samples=samples,
            global_batch=samples,
            updates_per_epoch=Fraction(1),
            remainder="trim",
            shuffle=False,
        ),
        micro=feed.micro,
        replica=group.rank,
        replicas=group.size,
        norm_group_size=norm_group_size,
    )
    gradient_sum = GradientSum(parameters, group=group, max_buffer_bytes=0, overlaps=overlaps, model=model)
    mover = WeightMover(
        parameters=parameters,
        context=context,
        device=device,
        optimiser=Sgd(parameters.values),
        learning_rate=LearningRate(curve=constant(rate), peak=rate, peak_origin="test"),
        rules=rules,
    )
    return TrainingProgram(
        model=model,
        passes=PlainPasses(
            step=ModelStep(
                forward=model,
                head=LossHead(task=chosen, loss_scaling=rules.loss_scaling),
                batch_norms=owner,
                context=context,
            ),
            context=context,
            draws=draws,
            batch_norms=owner,
            batches=batches,
            gradient_sum=gradient_sum,
            parameters=parameters,
            device=device,
            seed=seed,
        ),
        forward=model,
        batches=batches,
        precision=Precision(compute_dtype=torch.float32, device_type="cpu"),
        batch_norms=owner,
        context=context,
        draws=draws,
        task=chosen,
        mover=mover,
        rank_sums=RankSums(
            gradient_sum=gradient_sum,
            stop_votes=StopVotes(device),
            batch_norms=owner,
            mover=mover,
            groups=RankGroups(world=group, replicas=group),
        ),
        records=UpdateRecords(updates, score=chosen.metric, device=CPU),
        device=device,
        homes=Homes(model),
    )


def always(_update: int) -> bool:
    return True


def worst_error(expected: dict[str, NDArray[Any]], found: dict[str, NDArray[Any]]) -> float:
    """The largest relative error of a tensor, by promise 1's measure."""
    everything = float(np.sqrt(sum(np.square(value).sum() for value in expected.values())))
    return max(
        float(np.linalg.norm(expected[key] - found[key]))
        / (float(np.linalg.norm(expected[key])) + 1e-2 * everything)
        for key in expected
    )
