"""The data of a recipe and what its feed is made of, without a model."""

from dataclasses import dataclass

from drivetrain.cluster.devices import Device
from drivetrain.data.augment.at_decode import augments_at_decode
from drivetrain.data.augment.build import build_augmentation
from drivetrain.data.augment.chain import AnyAugmentation
from drivetrain.data.augment.dense_build import build_dense_augmentation
from drivetrain.data.bad_samples import bad_indices
from drivetrain.data.dense_preprocess import DensePreprocess
from drivetrain.data.feed import Feed, make_feed
from drivetrain.data.order import SampleOrder
from drivetrain.data.preparation import build_preparation
from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.plan.build import TrainingPlan, plan_training
from drivetrain.recipe.check_task import check_task_options
from drivetrain.recipe.given import Given
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe

__all__ = ["Delivery", "prepare_delivery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The data of a recipe, and all that its feed is made of."""

    recipe: Recipe
    data: DataSplits
    plan: TrainingPlan
    preprocess: Preparation
    augmentation: AnyAugmentation | None
    order: SampleOrder
    device: Device

    @property
    def changes_samples(self) -> bool:
        """Whether chance does anything to the samples."""
        return self.augmentation is not None or augments_at_decode(self.data.train)

    def feed(self) -> Feed:
        """The feed that `train` would have."""
        recipe = self.recipe
        return make_feed(
            self.data.train,
            order=self.order,
            preprocess=self.preprocess,
            micro_batch_size=self.plan.batch.micro,
            device=self.device.torch_device,
            memory_budget_bytes=self.device.free_memory_bytes,
            data_placement=recipe.data_placement,
            num_workers=recipe.num_workers,
            accelerator_side_preprocess=recipe.accelerator_side_preprocess,
            eight_bit_transfer=recipe.eight_bit_transfer,
            augmentation=self.augmentation,
        )[0]


def prepare_delivery(resolved: ResolvedRecipe, recipe: Recipe, *, device: Device) -> Delivery:
    """Opens the data of a recipe, for one replica."""
    recipe = recipe.model_copy(update={"replicas": 1, "max_updates": None})
    data = open_data(recipe)
    check_task_options(Given(recipe, resolved.origins), task=data.spec.task)
    plan = plan_training(recipe, samples=len(data.train))
    preprocess = build_preparation(recipe, data.spec)
    augmentation: AnyAugmentation | None
    if isinstance(preprocess, DensePreprocess):
        augmentation = build_dense_augmentation(recipe, data.spec, preprocess=preprocess)
    else:
        augmentation = build_augmentation(recipe, data.spec, source=data.train)
    order = SampleOrder(
        seed=recipe.seed,
        samples=len(data.train),
        global_batch=plan.batch.global_batch,
        updates_per_epoch=plan.epochs.updates_per_epoch,
        remainder=recipe.remainder,
        shuffle=recipe.shuffle,
        bad=tuple(bad_indices(data.train).tolist()),
    )
    return Delivery(
        recipe=recipe,
        data=data,
        plan=plan,
        preprocess=preprocess,
        augmentation=augmentation,
        order=order,
        device=device,
    )
