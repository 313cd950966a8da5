"""The data and the feed of a recipe without its model, and the speed of each stage of the feed by itself."""

from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.assembly.training_feed import augmentation_of, sample_order, training_feed
from drivetrain.data.augment.chain import AnyAugmentation, augments_at_decode, fetch_for_training
from drivetrain.data.feeds.feed import Feed
from drivetrain.data.feeds.host_batch import HostBatch
from drivetrain.data.order import SampleOrder, without_padding
from drivetrain.data.preprocess import Preparation, build_preparation, channels_last_view
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.devices.device import Device
from drivetrain.plan.training_plan import TrainingPlan, plan_training
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup, split_ranks
from drivetrain.recipe.checks.input_kind import refuse_image_options
from drivetrain.recipe.checks.task import check_task_options
from drivetrain.recipe.given import Given
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe

__all__ = ["Delivery", "prepare_delivery", "stage_speeds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The data of a recipe, and the parts that make up the feed of one of its replicas."""

    recipe: Recipe
    data: DataSplits
    plan: TrainingPlan
    preprocess: Preparation
    augmentation: AnyAugmentation | None
    order: SampleOrder
    device: Device
    group: ReplicaGroup = ALONE

    @property
    def changes_samples(self) -> bool:
        """Whether samples are augmented at random."""
        return self.augmentation is not None or augments_at_decode(self.data.train)

    def feed(self) -> Feed:
        """The feed that `train` would use; all ranks must call this together."""
        return training_feed(
            self.recipe,
            data=self.data,
            order=self.order,
            preprocess=self.preprocess,
            augmentation=self.augmentation,
            micro_batch_size=self.plan.batch.micro,
            device=self.device,
            groups=split_ranks(self.group, devices_per_replica=1),
        )[0]


def prepare_delivery(
    resolved: ResolvedRecipe, recipe: Recipe, *, device: Device, group: ReplicaGroup = ALONE
) -> Delivery:
    """Opens the data of a recipe, for one of the replicas in `group`."""
    recipe = recipe.model_copy(update={"max_updates": None})
    data = open_data(recipe)
    given = Given(recipe, resolved.origins)
    check_task_options(given, task=data.spec.task)
    if data.spec.input_kind != "image":
        refuse_image_options(given, words=data.spec.input_words)
    plan = plan_training(recipe, samples=len(data.train))
    preprocess = build_preparation(recipe, data.spec)
    return Delivery(
        recipe=recipe,
        data=data,
        plan=plan,
        preprocess=preprocess,
        augmentation=augmentation_of(recipe, data, preprocess),
        order=sample_order(recipe, data=data, plan=plan),
        device=device,
        group=group,
    )


def stage_speeds(delivery: Delivery, steps: int) -> dict[str, float]:
    """Images per second of reading, preprocessing and transfer to the device, each by itself."""
    spent_s = dict.fromkeys(("read_per_second", "preprocess_per_second", "transfer_per_second"), 0.0)
    images = 0
    for update in range(steps):
        samples = without_padding(delivery.order.indices(update))[: delivery.plan.batch.micro]
        passes = delivery.order.passes(update, update + 1)[0, : len(samples)]
        for stage, seconds in _timed_stages(delivery, samples, passes).items():
            spent_s[stage] += seconds
        images += len(samples)
    return {stage: images / seconds for stage, seconds in spent_s.items() if seconds}


def _timed_stages(
    delivery: Delivery, samples: NDArray[np.int64], passes: NDArray[np.int64]
) -> dict[str, float]:
    """The seconds of each stage for one micro-batch; on a CPU nothing is transferred, and that time is 0."""
    device, augmentation = delivery.device, delivery.augmentation
    drawn = None
    if augmentation is not None:
        drawn = augmentation.draw(samples, passes=passes, usable=delivery.order.usable())
        samples, passes = drawn.indices, drawn.passes
    started_s = perf_counter()
    images, labels = map(torch.from_numpy, fetch_for_training(delivery.data.train, samples, passes=passes))
    read_s = perf_counter()
    batch = HostBatch(images, labels)
    if drawn is not None:
        mix = None if drawn.mix is None else torch.from_numpy(drawn.mix)
        batch = replace(batch, draws=torch.from_numpy(drawn.values), mix=mix)
    if not device.is_cpu:
        batch = batch.pin_memory()
        device.synchronise()
    moving_s = perf_counter()
    batch = batch.to(device.torch_device)
    device.synchronise()
    moved_s = perf_counter()
    _prepared(delivery, batch)
    device.synchronise()
    return {
        "read_per_second": read_s - started_s,
        "preprocess_per_second": perf_counter() - moved_s,
        "transfer_per_second": 0.0 if device.is_cpu else moved_s - moving_s,
    }


def _prepared(delivery: Delivery, batch: HostBatch) -> None:
    stored = channels_last_view(batch.images)
    if delivery.augmentation is None or batch.draws is None:
        delivery.preprocess.both(stored, batch.labels)
    else:
        delivery.augmentation.prepare(
            stored, batch.labels, preprocess=delivery.preprocess, draws=batch.draws, mix=batch.mix
        )
