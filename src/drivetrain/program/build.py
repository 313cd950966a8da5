"""From a recipe, a model and a feed to a program on a device, in one fixed order.

1. the model goes to the device, channels_last; 2. its dropout becomes counter-based; 3. its batch norms
get their owner; 4. its parameters become one flat vector; 5. the optimiser takes that vector.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from drivetrain.cluster.devices import Device
from drivetrain.cluster.replica_group import ALONE, ReplicaGroup
from drivetrain.data.feed import Feed
from drivetrain.data.order import SampleOrder
from drivetrain.data.source import DataSpec
from drivetrain.errors import BadInputError
from drivetrain.factories import describe_failure
from drivetrain.optim.optimiser import build_optimiser
from drivetrain.plan.build import TrainingPlan
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.batch_norm import install_batch_norm_owner
from drivetrain.program.context import UpdateContext
from drivetrain.program.dropout import install_counter_dropout
from drivetrain.program.flat_parameters import FlatParameters
from drivetrain.program.forward import build_forward, choose_precision
from drivetrain.program.gradient_sum import GradientSum, pays_to_overlap
from drivetrain.program.records import UpdateRecords
from drivetrain.program.stop_votes import StopVotes
from drivetrain.program.training import GradientRules, TrainingProgram
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.build import build_task


def build_program(
    recipe: Recipe,
    *,
    model: nn.Module,
    plan: TrainingPlan,
    feed: Feed,
    order: SampleOrder,
    device: Device,
    spec: DataSpec,
    group: ReplicaGroup = ALONE,
    class_weights: NDArray[np.float32] | None = None,
) -> TrainingProgram:
    """The training program of one device."""
    precision = choose_precision(recipe, device)
    model = place_model(model, device)
    context = UpdateContext(device.torch_device)
    install_counter_dropout(model, seed=recipe.seed, context=context)
    batch_norms = install_batch_norm_owner(
        model,
        kept_share=recipe.bn_momentum,
        wide_dtype=device.wide_dtype,
        group=group.parts_of(recipe.dbn_replica_group_size),
        stable=recipe.stable_norm,
    )
    parameters = FlatParameters(model)
    averaged = [parameters.values, *batch_norms.statistics]
    weights = None if class_weights is None else torch.from_numpy(class_weights).to(device.torch_device)
    task = build_task(recipe, spec, class_weights=weights)
    return TrainingProgram(
        model=model,
        forward=build_forward(recipe, model, precision=precision),
        precision=precision,
        parameters=parameters,
        batch_norms=batch_norms,
        context=context,
        task=task,
        optimiser=build_optimiser(recipe, values=parameters.values, segments=parameters.segments),
        learning_rate=plan.learning_rate,
        rules=GradientRules(
            loss_scaling=recipe.loss_scaling,
            l2_regularization=recipe.l2_regularization,
            clip_norm=recipe.clip_norm,
        ),
        feed=feed,
        order=order,
        records=UpdateRecords(
            plan.epochs.total_updates, score=task.metric, device=device.torch_device, dtype=device.wide_dtype
        ),
        device=device,
        seed=recipe.seed,
        accumulation=plan.batch.accumulation,
        norm_group_size=recipe.dbn_replica_group_size,
        group=group,
        gradient_sum=GradientSum(
            parameters,
            group=group,
            max_buffer_bytes=recipe.max_cross_replica_buffer_size,
            overlaps=pays_to_overlap(device, parameters.gradients.nbytes),
            model=model,
        ),
        stop_votes=StopVotes(device),
        average=None if recipe.ema is None else WeightAverage(averaged, kept_share=recipe.ema),
    )


def place_model(model: nn.Module, device: Device) -> nn.Module:
    """A model on its device, with channels_last weights."""
    return model.to(device=device.torch_device).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


@torch.inference_mode()
def probe_output(model: nn.Module, *, shape: tuple[int, int, int], device: Device) -> torch.Size:
    """The shape of the output for two images; eval mode, so that no statistic moves."""
    was_training = model.training
    model.eval()
    images = torch.zeros(2, *shape, device=device.torch_device).contiguous(memory_format=torch.channels_last)
    try:
        output = model(images)
    except Exception as error:
        size = "x".join(str(length) for length in shape)
        raise BadInputError(f"--model cannot take images of {size}: {describe_failure(error)}") from error
    model.train(was_training)
    return torch.Size(output.shape)
