"""Builds the training data path: order of samples, augmentation, and the feed of a rank."""

import torch
from torch import Tensor

from drivetrain.data.augment.chain import AnyAugmentation
from drivetrain.data.augment.from_recipe import build_augmentation, build_dense_augmentation
from drivetrain.data.bad_samples import bad_indices
from drivetrain.data.feeds.feed import Feed, make_feed
from drivetrain.data.feeds.host_batch import HostPreparation
from drivetrain.data.feeds.micro_batch import SlotFeed
from drivetrain.data.order import SampleOrder, without_padding
from drivetrain.data.preprocess import DensePreprocess, Preparation
from drivetrain.data.source import DataSplits
from drivetrain.devices.device import Device
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.plan.training_plan import TrainingPlan
from drivetrain.ranks.replica_group import ALL_ALONE, RankGroups
from drivetrain.recipe.schema import Recipe

__all__ = ["augmentation_of", "first_images", "sample_order", "training_feed"]


def sample_order(recipe: Recipe, *, data: DataSplits, plan: TrainingPlan) -> SampleOrder:
    """The order of samples over all updates."""
    return SampleOrder(
        seed=recipe.seed,
        samples=len(data.train),
        global_batch=plan.batch.global_batch,
        updates_per_epoch=plan.epochs.updates_per_epoch,
        remainder=recipe.remainder,
        shuffle=recipe.shuffle,
        bad=tuple(bad_indices(data.train).tolist()),
    )


def augmentation_of(recipe: Recipe, data: DataSplits, preprocess: Preparation) -> AnyAugmentation | None:
    """The random augmentation of training samples; None without one."""
    if isinstance(preprocess, DensePreprocess):
        return build_dense_augmentation(recipe, data.spec, preprocess=preprocess)
    return build_augmentation(recipe, data.spec, source=data.train)


def training_feed(
    recipe: Recipe,
    *,
    data: DataSplits,
    order: SampleOrder,
    preprocess: Preparation,
    augmentation: AnyAugmentation | None,
    micro_batch_size: int,
    device: Device,
    groups: RankGroups = ALL_ALONE,
    stage_plan: StagePlan | None = None,
) -> tuple[Feed, list[str]]:
    """The feed of one rank, and warnings about it; a collective."""
    replicas = groups.replicas
    # The smallest free memory of all ranks: all must choose alike between resident and streamed data.
    memory_budget_bytes = min(groups.world.gather(device.free_memory_bytes))
    if stage_plan is not None and groups.devices.size > 1 and not stage_plan.reads_data(groups.devices.rank):
        slots = SlotFeed(
            order=order,
            micro_batch_size=micro_batch_size,
            device=device.torch_device,
            replica=replicas.rank,
            replicas=replicas.size,
        )
        return slots, []
    return make_feed(
        data.train,
        order=order,
        preprocess=preprocess,
        micro_batch_size=micro_batch_size,
        device=device.torch_device,
        data_placement=recipe.data_placement,
        num_workers=recipe.num_workers,
        accelerator_side_preprocess=recipe.accelerator_side_preprocess,
        eight_bit_transfer=recipe.eight_bit_transfer,
        augmentation=augmentation,
        memory_budget_bytes=memory_budget_bytes,
        group=replicas,
    )


def first_images(
    data: DataSplits,
    *,
    order: SampleOrder,
    preprocess: Preparation,
    augmentation: AnyAugmentation | None,
    micro_batch_size: int,
) -> Tensor:
    """The images of the first micro-batch of a training, made without its feed; noise if that fails."""
    preparation = HostPreparation(
        source=data.train, preprocess=preprocess, travel="preprocessed", augmentation=augmentation
    )
    here = slice(0, micro_batch_size)
    try:
        batch = preparation.for_training(
            without_padding(order.indices(0))[here],
            passes=order.passes(0, 1)[0, here],
            usable=order.usable(),
        )
        return preparation.on_device(batch)[0]
    except Exception:
        # A sample that cannot be read is for the feed to report, which knows how.
        shape = (micro_batch_size, preprocess.channels, preprocess.height, preprocess.width)
        return torch.randn(shape, generator=torch.Generator().manual_seed(0))
