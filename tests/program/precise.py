"""Small programs in a precision of their own, over samples that a test holds in its hand."""

from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.layers.float_watch import FloatWatch
from drivetrain.models.half_weights import halve_weights, is_half
from drivetrain.optim.optimiser import build_optimiser
from drivetrain.passes.forward import Precision, in_precision
from drivetrain.passes.loss_scale import DynamicLossScale
from drivetrain.passes.model_step import LossHead, ModelStep
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.program.records import UpdateRecords
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.schema import Recipe
from tests.program.harness import CPU, GivenFeed, make_program

FLOAT32 = Precision(compute_dtype=torch.float32, device_type="cpu")
MIXED = Precision(compute_dtype=torch.float16, device_type="cpu")
HALF = Precision(compute_dtype=torch.float16, device_type="cpu", weight_dtype=torch.float16)
PRECISIONS = {"32.32": FLOAT32, "16.32": MIXED, "16.16": HALF}


class Weight(nn.Module):
    """A weight times the image, which is one number; or several such weights."""

    def __init__(self, value: float, *, count: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, count), value))
        self.seen: list[torch.dtype] = []

    def forward(self, images: Tensor) -> Tensor:
        output = images @ self.weight
        self.seen.append(output.dtype)
        return output


class Output:
    """The output itself is the loss, so its gradient by a weight is the image."""

    metric = "accuracy"

    def losses_and_scores(self, outputs: Tensor, _targets: Tensor) -> tuple[Tensor, Tensor]:
        losses = outputs.float().flatten(1).sum(1)
        return losses, losses.detach()


def precise_program(
    model: nn.Module,
    images: Tensor,
    *,
    precision: Precision,
    scale: DynamicLossScale | None = None,
    recipe: dict[str, Any] | None = None,
    task: Any = None,
    micro: int | None = None,
    rate: float = 1.0,
    updates: int = 300,
    watched: bool = False,
) -> TrainingProgram:
    """A program of the model whose labels are all 0."""
    if is_half(precision.weight_dtype):
        halve_weights(model, precision.weight_dtype)
    labels = torch.zeros(len(images), dtype=torch.int64)
    feed = GivenFeed(images, labels, micro=micro or len(images))
    program = make_program(model, feed, task=task or Output(), rate=rate, updates=updates)
    settings = Recipe(optimizer="sgd", **{"optimizer_params": {}, **(recipe or {})})
    flat = program.parameters
    program.mover.optimiser = build_optimiser(
        settings,
        values=flat.values,
        segments=flat.segments,
        skips=None if scale is None else scale.skips,
    )
    program.precision, program.mover.loss_scale = precision, scale
    program.batch_norms.can_undo = scale is not None
    assert isinstance(program.passes, PlainPasses)
    program.passes.step = ModelStep(
        forward=in_precision(model, precision),
        head=LossHead(task=program.task, scale=None if scale is None else scale.scale),
        batch_norms=program.batch_norms,
        context=program.context,
    )
    others = () if scale is None else ("loss_scale", "skipped")
    program.records = UpdateRecords(updates, score=program.task.metric, device=CPU, others=others)
    if watched:
        program.float_watch = FloatWatch(
            {f"layer {name}" if name else "the model": module for name, module in model.named_modules()},
            context=program.context,
            parameters=flat,
            samples_of=program.order.indices,
            sees_gradients=scale is None,
        )
    program.model.train()
    return program
