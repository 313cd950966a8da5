"""The data of a recipe and what its feed is made of, without a model."""

from dataclasses import dataclass

from drivetrain.assembly.training_feed import augmentation_of, sample_order, training_feed
from drivetrain.data.augment.at_decode import augments_at_decode
from drivetrain.data.augment.chain import AnyAugmentation
from drivetrain.data.feeds.feed import Feed
from drivetrain.data.order import SampleOrder
from drivetrain.data.preparation import build_preparation
from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.devices.device import Device
from drivetrain.plan.training_plan import TrainingPlan, plan_training
from drivetrain.ranks.rank_groups import split_ranks
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.recipe.checks.task import check_task_options
from drivetrain.recipe.given import Given
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe

__all__ = ["Delivery", "prepare_delivery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The data of a recipe, and all that the feed of one of its replicas is made of."""

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
        """Whether chance does anything to the samples."""
        return self.augmentation is not None or augments_at_decode(self.data.train)

    def feed(self) -> Feed:
        """The feed that `train` would have; a collective."""
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
    check_task_options(Given(recipe, resolved.origins), task=data.spec.task)
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
