"""Builds forward and backward passes of an update, for the whole model or for the stages of a rank."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from drivetrain.assembly.prepared_model import PreparedModel, ProgramInputs
from drivetrain.devices.device import Device
from drivetrain.passes.forward import Forward, in_precision
from drivetrain.passes.gradient_sum import GradientSum, pays_to_overlap
from drivetrain.passes.model_step import LossHead, ModelStep
from drivetrain.passes.update_batches import UpdateBatches
from drivetrain.passes.whole_model import Passes, PlainPasses
from drivetrain.pipeline.cutting.settings import has_own_precisions
from drivetrain.pipeline.runtime.placed_stages import (
    PlacedStages,
    build_forward_only,
    build_passes,
    build_runners,
)
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.recipe.schema import Recipe

__all__ = ["BuiltPasses", "build_gradient_sum", "build_update_passes"]


def build_gradient_sum(recipe: Recipe, prepared: PreparedModel, inputs: ProgramInputs) -> GradientSum:
    """The all-reduce of gradients; overlaps with the last backward pass if that saves time."""
    gradient_bytes = prepared.parameters.gradients.nbytes
    return GradientSum(
        prepared.parameters,
        group=inputs.groups.replicas,
        max_buffer_bytes=recipe.max_cross_replica_buffer_size,
        overlaps=prepared.stages is None and pays_to_overlap(inputs.device, gradient_bytes),
        model=prepared.model,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPasses:
    """The passes of an update, the forward pass for evaluation, and the stages of this rank."""

    passes: Passes
    forward: Forward
    runners: Mapping[int, StageRunner] = field(default_factory=dict)


def build_update_passes(
    recipe: Recipe,
    prepared: PreparedModel,
    inputs: ProgramInputs,
    *,
    head: LossHead,
    batches: UpdateBatches,
    gradient_sum: GradientSum,
) -> BuiltPasses:
    """Builds the passes for the whole model, or for its stages; a collective with stages."""
    forward = in_precision(prepared.model, prepared.precision)
    if prepared.stages is None:
        step = _model_step(prepared, forward=forward, head=head)
        passes = _plain_passes(
            prepared, step, batches=batches, gradient_sum=gradient_sum, device=inputs.device, seed=recipe.seed
        )
        return BuiltPasses(passes=passes, forward=forward)
    groups, device = inputs.groups, inputs.device
    runners = _runners(recipe, prepared, prepared.stages, device=device, head=head)
    staged = build_passes(
        prepared.stages,
        runners,
        groups=groups,
        device=device,
        batches=batches,
        gradient_sum=gradient_sum,
        image_shape=inputs.image_shape,
    )
    if groups.devices.size > 1 or has_own_precisions(recipe):
        forward = build_forward_only(prepared.stages, runners, groups=groups, device=device)
    return BuiltPasses(passes=staged, forward=forward, runners=runners)


def _model_step(prepared: PreparedModel, *, forward: Forward, head: LossHead) -> ModelStep:
    return ModelStep(
        forward=forward,
        head=head,
        batch_norms=prepared.batch_norms,
        context=prepared.context,
        loss_dtype=torch.promote_types(prepared.parameters.values.dtype, torch.float32),
    )


def _plain_passes(
    prepared: PreparedModel,
    step: ModelStep,
    *,
    batches: UpdateBatches,
    gradient_sum: GradientSum,
    device: Device,
    seed: int,
) -> PlainPasses:
    return PlainPasses(
        step=step,
        context=prepared.context,
        draws=prepared.draws,
        batch_norms=prepared.batch_norms,
        batches=batches,
        gradient_sum=gradient_sum,
        parameters=prepared.parameters,
        device=device,
        seed=seed,
        # The first micro-batch writes its gradients instead of adding them to zeros. A CPU gains nothing; and
        # overlapped all-reduces read what has been added to the gradients during the backward pass.
        writes_first=not device.is_cpu and not gradient_sum.buckets,
    )


def _runners(
    recipe: Recipe, prepared: PreparedModel, stages: PlacedStages, *, device: Device, head: LossHead
) -> Mapping[int, StageRunner]:
    return build_runners(
        recipe,
        stages,
        model=prepared.model,
        device=device,
        context=prepared.context,
        draws=prepared.draws,
        batch_norms=prepared.batch_norms,
        head=head,
    )
