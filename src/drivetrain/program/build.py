"""From a recipe, a model and a feed to a program on a device, in one fixed order.

1. dropout becomes counter-based; 2. the model, or this rank's stages of it, goes to the device,
channels_last; 3. batch norms get their owner; 4. parameters become one flat vector; 5. the optimiser takes
that vector; 6. the passes of an update are made, of the model in one piece or of its stages.
"""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from drivetrain.cluster.devices import Device
from drivetrain.cluster.rank_groups import ALL_ALONE, RankGroups
from drivetrain.data.feed import Feed
from drivetrain.data.order import SampleOrder
from drivetrain.data.source import DataSpec
from drivetrain.errors import BadInputError
from drivetrain.factories import describe_failure
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.optim.optimiser import Optimiser, build_optimiser
from drivetrain.pipeline.build import (
    PlacedStages,
    build_forward_only,
    build_passes,
    build_runners,
    place_stages,
)
from drivetrain.pipeline.settings import has_own_precisions
from drivetrain.pipeline.stage_plan import StagePlan
from drivetrain.plan.build import TrainingPlan
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.batch_norm import install_batch_norm_owner
from drivetrain.program.context import UpdateContext
from drivetrain.program.dropout import install_counter_dropout
from drivetrain.program.flat_parameters import FlatParameters
from drivetrain.program.forward import Forward, build_forward, choose_precision, in_precision
from drivetrain.program.gradient_sum import GradientSum, pays_to_overlap
from drivetrain.program.loss_head import LossHead
from drivetrain.program.passes import Passes, PlainPasses
from drivetrain.program.records import UpdateRecords
from drivetrain.program.stop_votes import StopVotes
from drivetrain.program.training import GradientRules, TrainingProgram
from drivetrain.program.update_batches import UpdateBatches
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
    groups: RankGroups = ALL_ALONE,
    class_weights: NDArray[np.float32] | None = None,
    stage_plan: StagePlan | None = None,
    image_shape: tuple[int, int, int],
) -> TrainingProgram:
    """The training program of one rank: of the whole model, or of the stages that it holds."""
    precision = choose_precision(recipe, device)
    context = UpdateContext(device.torch_device)
    install_counter_dropout(model, seed=recipe.seed, context=context)
    stages = None
    if stage_plan is None:
        model = place_model(model, device)
    else:
        stages = place_stages(stage_plan, groups=groups, device=device)
    batch_norms = install_batch_norm_owner(
        model,
        kept_share=recipe.bn_momentum,
        wide_dtype=device.wide_dtype,
        group=groups.replicas.parts_of(recipe.dbn_replica_group_size),
        stable=recipe.stable_norm,
        only=None if stages is None else stages.module_names,
    )
    stages = None if stages is None else stages.cut_again()
    parameters = FlatParameters(
        model, only=None if stages is None else stages.parameter_names, device=device.torch_device
    )
    averaged = [parameters.values, *batch_norms.statistics]
    weights = None if class_weights is None else torch.from_numpy(class_weights).to(device.torch_device)
    task = build_task(recipe, spec, class_weights=weights)
    batches = UpdateBatches(
        feed=feed,
        order=order,
        micro=plan.batch.micro,
        replica=groups.replicas.rank,
        replicas=groups.replicas.size,
        norm_group_size=recipe.dbn_replica_group_size,
    )
    gradient_sum = GradientSum(
        parameters,
        group=groups.replicas,
        max_buffer_bytes=recipe.max_cross_replica_buffer_size,
        overlaps=stages is None and pays_to_overlap(device, parameters.gradients.nbytes),
        model=model,
    )
    head = LossHead(task=task, loss_scaling=recipe.loss_scaling)
    passes: Passes
    forward = in_precision(model, precision)
    if stages is None:
        passes = PlainPasses(
            forward=build_forward(recipe, model, precision=precision),
            context=context,
            head=head,
            batches=batches,
            gradient_sum=gradient_sum,
            device=device,
            seed=recipe.seed,
        )
    else:
        runners = build_runners(
            recipe,
            stages,
            model=model,
            device=device,
            context=context,
            batch_norms=batch_norms,
            head=head,
        )
        passes = build_passes(
            stages,
            runners,
            groups=groups,
            device=device,
            batches=batches,
            gradient_sum=gradient_sum,
            image_shape=image_shape,
        )
        if groups.devices.size > 1 or has_own_precisions(recipe):
            forward = build_forward_only(stages, runners, groups=groups, device=device)
    return TrainingProgram(
        model=model,
        passes=passes,
        forward=forward,
        stages=stages,
        batches=batches,
        precision=precision,
        parameters=parameters,
        batch_norms=batch_norms,
        context=context,
        task=task,
        optimiser=_optimiser(recipe, parameters, stages),
        learning_rate=plan.learning_rate,
        rules=GradientRules(
            loss_scaling=recipe.loss_scaling,
            l2_regularization=recipe.l2_regularization,
            clip_norm=recipe.clip_norm,
        ),
        records=UpdateRecords(
            plan.epochs.total_updates, score=task.metric, device=device.torch_device, dtype=device.wide_dtype
        ),
        device=device,
        groups=groups,
        gradient_sum=gradient_sum,
        stop_votes=StopVotes(device),
        average=None if recipe.ema is None else WeightAverage(averaged, kept_share=recipe.ema),
    )


def _optimiser(recipe: Recipe, parameters: FlatParameters, stages: PlacedStages | None) -> Optimiser:
    offloads = recipe.optimizer_state_offloading if stages is None else stages.offloads
    build = partial(build_optimiser, recipe)
    if offloads and parameters.segments:
        return OffloadedOptimiser(build, values=parameters.values, segments=parameters.segments)
    return build(values=parameters.values, segments=parameters.segments)


def place_model(model: nn.Module, device: Device) -> nn.Module:
    """A model on its device, with channels_last weights."""
    return model.to(device=device.torch_device).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


@torch.inference_mode()
def probe_output(
    model: nn.Module, forward: Forward, *, shape: tuple[int, int, int], device: Device
) -> torch.Size:
    """The shape of the output for two images; eval mode, so that no statistic moves."""
    was_training = model.training
    model.eval()
    images = torch.zeros(2, *shape, device=device.torch_device).contiguous(memory_format=torch.channels_last)
    try:
        output = forward(images)
    except Exception as error:
        size = "x".join(str(length) for length in shape)
        raise BadInputError(f"--model cannot take images of {size}: {describe_failure(error)}") from error
    model.train(was_training)
    return torch.Size(output.shape)
