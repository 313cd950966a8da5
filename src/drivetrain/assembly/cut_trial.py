"""Runs a copy of a model on one micro-batch, in one piece or in stages, and keeps what it computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from drivetrain.assembly.prepared_model import PreparedModel, ProgramInputs, prepare_for_training
from drivetrain.assembly.update_passes import BuiltPasses, build_gradient_sum, build_update_passes
from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.data.order import SampleOrder
from drivetrain.devices.device import Device
from drivetrain.layers.draws.generators import kept_host_generators
from drivetrain.models.parameter_hooks import copy_model
from drivetrain.passes.model_step import LossHead, LossParts
from drivetrain.passes.update_batches import NumberedBatch, UpdateBatches
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.runtime.executor import UpdateWork
from drivetrain.pipeline.runtime.placed_stages import PipelinePasses
from drivetrain.ranks.replica_group import ALL_ALONE
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.actions import Kind, Schedule
from drivetrain.schedules.traffic import messages

__all__ = ["LayerCall", "Outcome", "Trial", "kept_generators", "run_trial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A model before it is prepared for training, its stage plan, and the images to try it with.

    The model itself is never run or changed: every run prepares a copy. Without `has_gradients` there is no
    backward pass.
    """

    recipe: Recipe
    model: nn.Module
    plan: StagePlan
    inputs: ProgramInputs
    images: Tensor
    has_gradients: bool

    @property
    def device(self) -> Device:
        return self.inputs.device


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One call of a layer: the types of its outputs, and inputs and outputs if they were asked for."""

    kinds: tuple[torch.dtype, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run computed, in host memory; `calls` are those of each layer that is a module, by its path.

    `outputs` has one entry per pass through the last layer: two if it was recomputed.
    """

    outputs: list[Tensor]
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]
    calls: dict[str, list[LayerCall]]
    is_half: bool


def run_trial(trial: Trial, *, in_stages: bool, keeps_values: bool = False) -> Outcome:
    """Runs a copy of the model as the first micro-batch of update 0; torch's generators stay as they are.

    `keeps_values` also keeps the inputs and outputs of all layers, in host memory.
    """
    recipe, twin = _one_process(trial.recipe), copy_model(trial.model)
    plan = _on(twin, trial.plan, recipe) if in_stages else None
    inputs = replace(trial.inputs, groups=ALL_ALONE, stage_plan=plan)
    with kept_generators(trial.device):
        prepared = prepare_for_training(recipe, twin, inputs)
        twin.train()
        calls = _watch_layers(twin, trial.plan, keeps_values=keeps_values)
        head = _ProbeHead(task=inputs.task(recipe))
        batch = _micro_batch(trial)
        built = _build(recipe, prepared, inputs, head=head, batch=batch)
        if trial.has_gradients:
            built.passes.run(0)
        else:
            _run_forward(built, batch)
    prepared.batch_norms.commit()
    return _outcome(trial, prepared, head, calls)


def _one_process(recipe: Recipe) -> Recipe:
    """The recipe without what other ranks add, and without compilation, which takes long and only rounds."""
    return recipe.model_copy(update={"dbn_replica_group_size": 1, "compile": "off"})


def _on(twin: nn.Module, plan: StagePlan, recipe: Recipe) -> StagePlan:
    """The same stages for a copy of the model, all of them in the precision of the whole model."""
    settings = (replace(each, precision=recipe.precision, compiles=False) for each in plan.settings)
    return replace(plan, traced=plan.traced.on(twin), settings=tuple(settings))


@contextmanager
def kept_generators(device: Device) -> Iterator[None]:
    """Restores the generators of torch, numpy and Python after the block."""
    own = [] if device.is_cpu else [device.torch_device]
    kind = "cuda" if device.is_cpu else device.torch_device.type
    with torch.random.fork_rng(devices=own, device_type=kind), kept_host_generators():
        yield


def _watch_layers(model: nn.Module, plan: StagePlan, *, keeps_values: bool) -> dict[str, list[LayerCall]]:
    """Collects the calls of all layers of the graph that are modules."""
    calls: dict[str, list[LayerCall]] = {}
    for path in dict.fromkeys(layer.module_path for layer in plan.traced.layers if layer.module_path):
        own = calls[path] = []

        def note(_module: nn.Module, args: tuple[Any, ...], output: Any, own: list[LayerCall] = own) -> None:
            given, made = _tensors(args), _tensors(output)
            kept = (tuple(map(_in_host, values)) if keeps_values else () for values in (given, made))
            own.append(LayerCall(tuple(value.dtype for value in made), *kept))

        model.get_submodule(path).register_forward_hook(note)
    return calls


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _in_host(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProbeHead(LossHead):
    """In place of the loss: a weighted sum of all logits, so that each of them has a gradient of its own."""

    seen: list[Tensor] = field(default_factory=list)

    def __call__(self, logits: Tensor, batch: MicroBatch, *, share: float | Tensor) -> LossParts:  # noqa: ARG002
        self.seen.append(logits.detach())
        # Not drawn: a draw here would count among those of the model.
        weights = torch.arange(1.0, logits.numel() + 1, device=logits.device).sin().view(logits.shape)
        loss = (logits.to(torch.promote_types(logits.dtype, torch.float32)) * weights).sum()
        return LossParts(loss, loss.detach(), loss.detach())


class _OneBatch:
    """A feed of one micro-batch, the same for every update."""

    def __init__(self, batch: MicroBatch) -> None:
        self.data_seconds = 0.0
        self.transfer_seconds = 0.0
        self._batch = batch

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:  # noqa: ARG002
        yield self._batch

    def close(self) -> None:
        """Does nothing: there are no workers."""


def _micro_batch(trial: Trial) -> MicroBatch:
    """The images, copied because layers may change them in place; no labels, as there is no loss."""
    device = trial.device.torch_device
    images = trial.images.to(device, copy=True).contiguous(memory_format=torch.channels_last)
    slots = torch.arange(len(images), device=device)
    return MicroBatch(images, torch.zeros_like(slots), None, slots)


def _build(
    recipe: Recipe, prepared: PreparedModel, inputs: ProgramInputs, *, head: LossHead, batch: MicroBatch
) -> BuiltPasses:
    samples = len(batch.slots)
    order = SampleOrder(
        seed=recipe.seed,
        samples=samples,
        global_batch=samples,
        updates_per_epoch=Fraction(1),
        remainder="trim",
        shuffle=False,
    )
    return build_update_passes(
        recipe,
        prepared,
        inputs,
        head=head,
        batches=UpdateBatches(feed=_OneBatch(batch), order=order, micro=samples),
        gradient_sum=build_gradient_sum(recipe, prepared, inputs),
    )


@torch.no_grad()
def _run_forward(built: BuiltPasses, batch: MicroBatch) -> None:
    """The forward passes of a training update alone."""
    passes = built.passes
    if isinstance(passes, PlainPasses):
        passes.seed_generators(0, 0)
        passes.forward(batch, share=1.0, generator_key=passes.generator_key(0, 0))
        return
    assert isinstance(passes, PipelinePasses)
    schedule = _forwards(passes.schedule_of(1))
    work = UpdateWork(
        update=0,
        share=1.0,
        schedule=schedule,
        traffic=messages(schedule, passes.edges),
        batches=iter([NumberedBatch(0, batch)]),
    )
    passes.executor.run(work)


def _forwards(schedule: Schedule) -> Schedule:
    rows = (tuple(action for action in row if action.kind is Kind.FORWARD) for row in schedule.table)
    return replace(schedule, table=tuple(rows))


def _outcome(
    trial: Trial, prepared: PreparedModel, head: _ProbeHead, calls: dict[str, list[LayerCall]]
) -> Outcome:
    model, precision = prepared.model, prepared.precision
    gradients = prepared.parameters.named_views(prepared.parameters.gradients)
    return Outcome(
        outputs=list(map(_in_host, head.seen)),
        gradients={name: _in_host(value) for name, value in gradients} if trial.has_gradients else {},
        buffers={name: _in_host(buffer) for name, buffer in model.named_buffers()},
        calls=calls,
        is_half=any(dtype.itemsize < 4 for dtype in (precision.compute_dtype, precision.weight_dtype)),
    )
