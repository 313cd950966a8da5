"""From a recipe, a model and a feed to a program on a device, in one fixed order.

1. dropout becomes counter-based; 2. the model, or this rank's stages of it, goes to the device,
channels_last; 3. batch norms get their owner; 4. parameters become one flat vector; 5. the optimiser takes
that vector; 6. the passes of an update are made, of the model in one piece or of its stages; 7. where the
device can, whole updates are captured.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.data.feeds.feed import Feed
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.data.order import SampleOrder
from drivetrain.data.source import DataSpec
from drivetrain.devices.compilation import Compilable, CompiledParts
from drivetrain.devices.device import Device
from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.dropout import install_counter_dropout
from drivetrain.layers.float_watch import FloatWatch
from drivetrain.layers.precision_by_layer import install_precision_list
from drivetrain.models.half_weights import halve_weights, is_half
from drivetrain.models.requirements import require_tensor
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.optim.optimiser import Optimiser, build_optimiser
from drivetrain.passes.forward import Forward, choose_precision, in_precision
from drivetrain.passes.gradient_sum import GradientSum, pays_to_overlap
from drivetrain.passes.loss_scale import DynamicLossScale
from drivetrain.passes.model_step import LossHead, ModelStep
from drivetrain.passes.update_batches import UpdateBatches
from drivetrain.passes.whole_model import Passes, PlainPasses
from drivetrain.pipeline.cutting.settings import has_own_precisions
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.runtime.placed_stages import (
    PlacedStages,
    build_forward_only,
    build_passes,
    build_runners,
    place_stages,
)
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.plan.training_plan import TrainingPlan
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.capture_choice import capture_updates
from drivetrain.program.records import UpdateRecords
from drivetrain.program.stop_votes import StopVotes
from drivetrain.program.training import GradientRules, TrainingProgram
from drivetrain.ranks.replica_group import ALL_ALONE, RankGroups
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.from_recipe import build_task

__all__ = ["build_program", "compilable_parts", "place_model", "probe_output"]


# What of a training program can be compiled.


def compilable_parts(
    program: TrainingProgram, runners: Mapping[int, StageRunner] | None = None
) -> CompiledParts:
    """Model with loss, augmentation and optimiser; of a model that is cut, its stages alone."""
    return CompiledParts(_stages(runners) if runners else _whole(program))


def _stages(runners: Mapping[int, StageRunner]) -> Iterator[Compilable[..., Any]]:
    return (runner.call for runner in runners.values() if isinstance(runner.call, Compilable))


def _whole(program: TrainingProgram) -> Iterator[Compilable[..., Any]]:
    if isinstance(program.passes, PlainPasses) and isinstance(program.passes.step, ModelStep):
        yield program.passes.step.compilable
    if isinstance(program.feed, ResidentFeed | StreamFeed):
        yield program.feed.prepare
    # Its copies go beside the computation, on streams of their own.
    if not isinstance(program.optimiser, OffloadedOptimiser):
        yield program.move_weights


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
    if is_half(precision.weight_dtype):
        halve_weights(model, precision.weight_dtype)
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
    if recipe.precision_list is not None:
        install_precision_list(model, recipe.precision_list)
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
    static_scale, loss_scale = _loss_scaling(recipe, device)
    batch_norms.can_undo = loss_scale is not None
    head = LossHead(
        task=task, loss_scaling=static_scale, scale=None if loss_scale is None else loss_scale.scale
    )
    passes: Passes
    runners: Mapping[int, StageRunner] = {}
    forward = in_precision(model, precision)
    if stages is None:
        passes = PlainPasses(
            step=ModelStep(
                forward=forward,
                head=head,
                batch_norms=batch_norms,
                context=context,
                loss_dtype=torch.promote_types(parameters.values.dtype, torch.float32),
            ),
            context=context,
            batches=batches,
            gradient_sum=gradient_sum,
            parameters=parameters,
            device=device,
            seed=recipe.seed,
            # A CPU gains nothing by it. Sums beside the backward pass read what has been added so far.
            writes_first=not device.is_cpu and not gradient_sum.buckets,
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
    program = TrainingProgram(
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
        optimiser=_optimiser(recipe, parameters, stages, loss_scale),
        learning_rate=plan.learning_rate,
        rules=GradientRules(
            loss_scaling=static_scale,
            l2_regularization=recipe.l2_regularization,
            clip_norm=recipe.clip_norm,
        ),
        records=UpdateRecords(
            plan.epochs.total_updates,
            score=task.metric,
            device=device.torch_device,
            dtype=device.wide_dtype,
            others=() if loss_scale is None else ("loss_scale", "skipped"),
        ),
        device=device,
        groups=groups,
        gradient_sum=gradient_sum,
        stop_votes=StopVotes(device),
        average=None if recipe.ema is None else WeightAverage(averaged, kept_share=recipe.ema),
        loss_scale=loss_scale,
    )
    program.compiled = compilable_parts(program, runners)
    if recipe.compile == "on" and stages is None:
        program.compiled.switch(True)
    if recipe.fp_exceptions:
        program.float_watch = _float_watch(program)
    capture_updates(program, recipe)
    return program


def _loss_scaling(recipe: Recipe, device: Device) -> tuple[float, DynamicLossScale | None]:
    """The fixed factor on the loss, and the one that is found in the training."""
    if recipe.loss_scaling == "dynamic":
        return 0.0, DynamicLossScale(device.torch_device)
    return recipe.loss_scaling, None


def _float_watch(program: TrainingProgram) -> FloatWatch:
    """Looks at all modules, and at what stages give: their own steps are of no module."""
    modules = {
        f"layer {name}" if name else "the model": module for name, module in program.model.named_modules()
    }
    if program.stages is not None:
        modules |= {f"stage {stage}": program.stages.cut.stages[stage] for stage in program.stages.own}
    return FloatWatch(
        modules,
        context=program.context,
        parameters=program.parameters,
        samples_of=program.order.indices,
        sees_gradients=program.loss_scale is None,
    )


def _optimiser(
    recipe: Recipe,
    parameters: FlatParameters,
    stages: PlacedStages | None,
    loss_scale: DynamicLossScale | None,
) -> Optimiser:
    offloads = recipe.optimizer_state_offloading if stages is None else stages.offloads
    build = partial(build_optimiser, recipe, skips=None if loss_scale is None else loss_scale.skips)
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
    finally:
        model.train(was_training)
    require_tensor(output)
    return torch.Size(output.shape)
