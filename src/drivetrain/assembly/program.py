"""Builds the training program of a rank from recipe, model and feed, by steps in a fixed order.

`prepare_for_training` takes the first five: 1. `place_draws`; 2. `install_narrow_convolutions`;
3. `place_on_device`; 4. `install_norms`; 5. `flatten_parameters`. `build_program` goes on: 6. `build_mover`;
7. `build_update_passes`; 8. `compile_parts`; 9. `watch_floats`; 10. `capture_updates`.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from drivetrain.assembly.prepared_model import PreparedModel, ProgramInputs, prepare_for_training
from drivetrain.assembly.update_passes import build_gradient_sum, build_update_passes
from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.devices.compilation import Compilable, CompiledParts
from drivetrain.devices.device import Device
from drivetrain.layers.float_watch import FloatWatch
from drivetrain.layers.moving_state import Homes
from drivetrain.models.kept_values import keeping_values
from drivetrain.models.requirements import require_tensor
from drivetrain.optim.block_rates import block_rates
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.optim.optimiser import Optimiser, build_optimiser
from drivetrain.optim.part_rates import PartRate, parts_of
from drivetrain.passes.forward import Forward
from drivetrain.passes.loss_scale import DynamicLossScale
from drivetrain.passes.model_step import LossHead, ModelStep
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.plan.training_plan import TrainingPlan
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.capture_choice import capture_updates
from drivetrain.program.gradient_rules import GradientRules
from drivetrain.program.move_weights import WeightMover
from drivetrain.program.rank_sums import RankSums
from drivetrain.program.records import UpdateRecords
from drivetrain.program.stop_votes import StopVotes
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.task import Task

__all__ = ["build_program", "compilable_parts", "probe_output"]


def compilable_parts(
    program: TrainingProgram, runners: Mapping[int, StageRunner] | None = None
) -> CompiledParts:
    """The parts that torch.compile can compile: model with loss, augmentation, optimiser; or only stages."""
    return CompiledParts(_stages(runners) if runners else _whole(program))


def _stages(runners: Mapping[int, StageRunner]) -> Iterator[Compilable[..., Any]]:
    return (runner.call for runner in runners.values() if isinstance(runner.call, Compilable))


def _whole(program: TrainingProgram) -> Iterator[Compilable[..., Any]]:
    # Compiled code cannot be told where in the model a draw is made.
    passes = None if program.draws.facts.needs_places else program.passes
    if isinstance(passes, PlainPasses) and isinstance(passes.step, ModelStep):
        yield passes.step.compilable
    if isinstance(program.feed, ResidentFeed | StreamFeed):
        yield program.feed.prepare
    # Not an offloaded optimiser: it copies on CUDA streams of its own, beside the computation.
    if not isinstance(program.mover.optimiser, OffloadedOptimiser):
        yield program.mover.move_weights


def build_program(recipe: Recipe, *, model: nn.Module, inputs: ProgramInputs) -> TrainingProgram:
    """Builds the training program of one rank, for the whole model or for its stages."""
    prepared = prepare_for_training(recipe, model, inputs)
    mover = build_mover(recipe, prepared, inputs)
    task, batches = inputs.task(recipe), inputs.batches(recipe)
    gradient_sum = build_gradient_sum(recipe, prepared, inputs)
    head = _loss_head(task, mover)
    built = build_update_passes(
        recipe, prepared, inputs, head=head, batches=batches, gradient_sum=gradient_sum
    )
    program = TrainingProgram(
        model=prepared.model,
        passes=built.passes,
        forward=built.forward,
        stages=prepared.stages,
        batches=batches,
        precision=prepared.precision,
        batch_norms=prepared.batch_norms,
        context=prepared.context,
        draws=prepared.draws,
        task=task,
        mover=mover,
        rank_sums=RankSums(
            gradient_sum=gradient_sum,
            stop_votes=StopVotes(inputs.device),
            batch_norms=prepared.batch_norms,
            mover=mover,
            groups=inputs.groups,
        ),
        records=_records(mover, task=task, plan=inputs.plan),
        device=inputs.device,
        homes=Homes(prepared.model),
    )
    compile_parts(program, recipe, built.runners)
    watch_floats(program, recipe)
    capture_updates(program, recipe)
    return program


def build_mover(recipe: Recipe, prepared: PreparedModel, inputs: ProgramInputs) -> WeightMover:
    """Builds what updates the weights: optimiser, learning rate, gradient rules, loss scale and average."""
    static_scale, loss_scale = _loss_scaling(recipe, inputs.device)
    prepared.batch_norms.can_undo = loss_scale is not None
    rates = block_rates(recipe, prepared.model, updates_per_epoch=inputs.plan.epochs.updates_per_epoch)
    return WeightMover(
        parameters=prepared.parameters,
        context=prepared.context,
        device=inputs.device,
        optimiser=_optimiser(recipe, prepared, loss_scale, rates=rates),
        learning_rate=inputs.plan.learning_rate,
        rules=GradientRules(
            loss_scaling=static_scale,
            l2_regularization=recipe.l2_regularization,
            clip_norm=recipe.clip_norm,
        ),
        parts=inputs.groups.devices,
        waiting=_waiting(prepared, rates),
        loss_scale=loss_scale,
        average=_average(recipe, prepared),
    )


def _loss_scaling(recipe: Recipe, device: Device) -> tuple[float, DynamicLossScale | None]:
    """The static loss scale, and the dynamic one if --loss-scaling dynamic is given."""
    if recipe.loss_scaling == "dynamic":
        return 0.0, DynamicLossScale(device.torch_device)
    return recipe.loss_scaling, None


def _waiting(prepared: PreparedModel, rates: Mapping[str, PartRate]) -> list[tuple[slice, PartRate]]:
    """The places of the weights on this rank that are not updated from the first update on."""
    parameters = prepared.parameters
    parts = parts_of(parameters.segments, rates, end=len(parameters.values))
    return [(place, rate) for place, rate in parts if rate.first]


def _optimiser(
    recipe: Recipe,
    prepared: PreparedModel,
    loss_scale: DynamicLossScale | None,
    *,
    rates: Mapping[str, PartRate],
) -> Optimiser:
    parameters, stages = prepared.parameters, prepared.stages
    offloads = recipe.optimizer_state_offloading if stages is None else stages.offloads
    skips = None if loss_scale is None else loss_scale.skips
    build = partial(build_optimiser, recipe, skips=skips, rates=rates)
    if offloads and parameters.segments:
        return OffloadedOptimiser(build, values=parameters.values, segments=parameters.segments)
    return build(values=parameters.values, segments=parameters.segments)


def _average(recipe: Recipe, prepared: PreparedModel) -> WeightAverage | None:
    if recipe.ema is None:
        return None
    averaged = [prepared.parameters.values, *prepared.batch_norms.statistics]
    return WeightAverage(averaged, kept_share=recipe.ema)


def _loss_head(task: Task, mover: WeightMover) -> LossHead:
    loss_scale = mover.loss_scale
    return LossHead(
        task=task,
        loss_scaling=mover.rules.loss_scaling,
        scale=None if loss_scale is None else loss_scale.scale,
    )


def _records(mover: WeightMover, *, task: Task, plan: TrainingPlan) -> UpdateRecords:
    return UpdateRecords(
        plan.epochs.total_updates,
        score=task.metric,
        device=mover.device.torch_device,
        dtype=mover.device.wide_dtype,
        others=tuple(mover.scale_numbers()),
    )


def compile_parts(program: TrainingProgram, recipe: Recipe, runners: Mapping[int, StageRunner]) -> None:
    """Collects the parts that can be compiled, and switches compilation on with --compile on."""
    program.compiled = compilable_parts(program, runners)
    if recipe.compile == "on" and program.stages is None:
        program.compiled.switch(True)


def watch_floats(program: TrainingProgram, recipe: Recipe) -> None:
    """--fp-exceptions: checks the outputs of all modules, and of stages.

    Stages are checked too because operations between modules, such as a residual addition, belong to none.
    """
    if not recipe.fp_exceptions:
        return
    modules = {
        f"layer {name}" if name else "the model": module for name, module in program.model.named_modules()
    }
    if program.stages is not None:
        modules |= {f"stage {stage}": program.stages.cut.stages[stage] for stage in program.stages.own}
    program.float_watch = FloatWatch(
        modules,
        context=program.context,
        parameters=program.parameters,
        samples_of=program.order.indices,
        sees_gradients=program.mover.loss_scale is None,
    )


@torch.inference_mode()
def probe_output(
    model: nn.Module, forward: Forward, *, shape: tuple[int, int, int], device: Device
) -> torch.Size:
    """The output shape for two images; in eval mode, so that batch-norm statistics do not change."""
    was_training = model.training
    model.eval()
    images = torch.zeros(2, *shape, device=device.torch_device).contiguous(memory_format=torch.channels_last)
    try:
        with keeping_values(model):
            output = forward(images)
    except Exception as error:
        size = "x".join(str(length) for length in shape)
        raise BadInputError(f"--model cannot take images of {size}: {describe_failure(error)}") from error
    finally:
        model.train(was_training)
    require_tensor(output)
    return torch.Size(output.shape)
