"""Prepares a model for training: dropout, faulty convolutions, device, batch norms and flat parameters."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from drivetrain.data.feeds.feed import Feed
from drivetrain.data.order import SampleOrder
from drivetrain.data.source import DataSpec
from drivetrain.devices.device import Device
from drivetrain.layers.batch_norm import BatchNormOwner, install_batch_norm_owner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.facts import DrawFacts
from drivetrain.layers.draws.install import place_draws
from drivetrain.layers.draws.places import DrawPlaces
from drivetrain.layers.precision_by_layer import install_precision_list
from drivetrain.models.half_weights import halve_weights, is_half
from drivetrain.models.kept_values import give_own_memory
from drivetrain.models.memory_format import in_memory_format
from drivetrain.models.narrow_convolutions import install_narrow_convolutions
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.passes.forward import Precision, choose_precision
from drivetrain.passes.update_batches import UpdateBatches
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.runtime.placed_stages import PlacedStages, place_stages
from drivetrain.plan.training_plan import TrainingPlan
from drivetrain.ranks.replica_group import ALL_ALONE, RankGroups
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.from_recipe import build_task
from drivetrain.tasks.task import Task

__all__ = ["PreparedModel", "ProgramInputs", "place_model", "prepare_for_training"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramInputs:
    """What the program of one rank is built from: plan, feed, device and its groups of ranks."""

    plan: TrainingPlan
    feed: Feed
    order: SampleOrder
    device: Device
    spec: DataSpec
    image_shape: tuple[int, int, int]
    groups: RankGroups = ALL_ALONE
    class_weights: NDArray[np.float32] | None = None
    stage_plan: StagePlan | None = None
    draw_facts: DrawFacts = field(default_factory=DrawFacts)

    def batches(self, recipe: Recipe) -> UpdateBatches:
        """The micro-batches of every update of this replica."""
        return UpdateBatches(
            feed=self.feed,
            order=self.order,
            micro=self.plan.batch.micro,
            replica=self.groups.replicas.rank,
            replicas=self.groups.replicas.size,
            norm_group_size=recipe.dbn_replica_group_size,
        )

    def task(self, recipe: Recipe) -> Task:
        """What the model learns."""
        weights = self.class_weights
        on_device = None if weights is None else torch.from_numpy(weights).to(self.device.torch_device)
        return build_task(recipe, self.spec, class_weights=on_device)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A model ready for training; with pipeline stages, `stages` are those of this rank."""

    model: nn.Module
    stages: PlacedStages | None
    precision: Precision
    context: UpdateContext
    draws: DrawPlaces
    batch_norms: BatchNormOwner
    parameters: FlatParameters


def prepare_for_training(recipe: Recipe, model: nn.Module, inputs: ProgramInputs) -> PreparedModel:
    """Runs the steps that change the model itself; their order matters (see `program.py`)."""
    precision = choose_precision(recipe, inputs.device)
    context = UpdateContext(inputs.device.torch_device)
    give_own_memory(model)
    draws = place_draws(
        model, seed=recipe.seed, context=context, device=inputs.device, facts=inputs.draw_facts
    )
    if inputs.device.is_cpu:
        install_narrow_convolutions(model)
    model, stages = place_on_device(model, precision, inputs)
    batch_norms = install_norms(recipe, model, stages, inputs)
    # The owner of batch norms gave their statistics other tensors, which a stage may hold by themselves where
    # the model's own code reads them: the stages are cut again to hold the new ones.
    stages = None if stages is None else stages.cut_again()
    return PreparedModel(
        model=model,
        stages=stages,
        precision=precision,
        context=context,
        draws=draws,
        batch_norms=batch_norms,
        parameters=flatten_parameters(model, stages, inputs.device),
    )


def place_on_device(
    model: nn.Module, precision: Precision, inputs: ProgramInputs
) -> tuple[nn.Module, PlacedStages | None]:
    """Moves the model, or the stages of this rank, to the device; converts weights to 16 bits if asked."""
    if is_half(precision.weight_dtype):
        halve_weights(model, precision.weight_dtype)
    if inputs.stage_plan is None:
        return place_model(model, inputs.device), None
    return model, place_stages(inputs.stage_plan, groups=inputs.groups, device=inputs.device)


def place_model(model: nn.Module, device: Device) -> nn.Module:
    """Moves a model to its device, with weights in its memory format."""
    return in_memory_format(model.to(device=device.torch_device))


def install_norms(
    recipe: Recipe, model: nn.Module, stages: PlacedStages | None, inputs: ProgramInputs
) -> BatchNormOwner:
    """Installs the owner of all batch norms, and --precision-list; a collective."""
    batch_norms = install_batch_norm_owner(
        model,
        kept_share=recipe.bn_momentum,
        wide_dtype=inputs.device.wide_dtype,
        group=inputs.groups.replicas.parts_of(recipe.dbn_replica_group_size),
        stable=recipe.stable_norm,
        only=None if stages is None else stages.module_names,
    )
    if recipe.precision_list is not None:
        install_precision_list(model, recipe.precision_list)
    return batch_norms


def flatten_parameters(model: nn.Module, stages: PlacedStages | None, device: Device) -> FlatParameters:
    """Packs the parameters trained on this rank into one flat vector, and their gradients into another."""
    only = None if stages is None else stages.parameter_names
    return FlatParameters(model, only=only, device=device.torch_device)
