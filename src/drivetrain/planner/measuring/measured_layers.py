"""Forward and backward seconds of each layer on this device, scaled to agree with a whole update."""

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from drivetrain.console.reporter import Reporter
from drivetrain.devices.device import Device
from drivetrain.models.half_weights import halve_weights
from drivetrain.models.input_form import as_model_input
from drivetrain.models.memory_format import in_memory_format
from drivetrain.passes.forward import Precision, choose_precision
from drivetrain.pipeline.graph.shapes import GraphWalk
from drivetrain.pipeline.graph.trace import TracedModel
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.costs import LayerTime, ModelTimes
from drivetrain.planner.devices.target import Target
from drivetrain.planner.measuring.measured_update import (
    MeasuredUpdate,
    one_process,
    recall,
    remember,
    timing_marks,
)
from drivetrain.planner.update_times import UpdateTimes
from drivetrain.ranks.replica_group import ALONE
from drivetrain.recipe.schema import Recipe
from drivetrain.run.train import set_up_device

__all__ = ["calibrated", "layer_seconds", "measure_layers"]

_REPEATS = 3
_Seconds = Sequence[Sequence[float]]


def measure_layers(
    planned: PlannedRun, update: MeasuredUpdate, *, target: Target, anew: bool = False, reporter: Reporter
) -> UpdateTimes:
    """The times of all layers of a model in stages; an earlier answer is taken unless `anew`."""
    plan, recipe = planned.outline.plan, one_process(planned.recipe)
    assert plan is not None, "a model in stages"
    assert target.here is not None, "only a device of this machine can be measured"
    marks = timing_marks(planned, recipe, device=target.here)
    known = None if anew else recall("layers", marks).get("seconds")
    if known is None or len(known) != len(plan.traced.layers):
        with reporter.showing("timing layers"), set_up_device(recipe, ALONE) as device:
            known = _measured(planned, recipe, device=device)
        remember("layers", marks, {"seconds": known})
    names = [layer.name for layer in plan.traced.layers]
    recomputes = [plan.settings[stage].recomputes for stage in plan.stage_of]
    return calibrated(names, known, update=update, micro=planned.training.batch.micro, recomputes=recomputes)


def calibrated(
    names: Sequence[str],
    seconds: _Seconds,
    *,
    update: MeasuredUpdate,
    micro: int,
    recomputes: Sequence[bool],
) -> UpdateTimes:
    """Multiplies the times of layers by one factor, such that their sum is that of the measured update."""
    eager_s = sum(
        forward + backward + (forward if again else 0.0)
        for (forward, backward), again in zip(seconds, recomputes, strict=True)
    )
    factor = update.micro_batch_s / eager_s if eager_s else 1.0
    layers = [
        LayerTime(name=name, forward_s=factor * forward, backward_s=factor * backward)
        for name, (forward, backward) in zip(names, seconds, strict=True)
    ]
    model = ModelTimes(layers=layers, micro_batch_size=micro, update_s=update.optimiser_s, source="measured")
    return UpdateTimes(
        passes_s=update.update_s - update.optimiser_s,
        last_backward_s=model.backward_s,
        update_s=update.optimiser_s,
        source="measured",
        layers=model,
        factor=factor,
    )


def _measured(planned: PlannedRun, recipe: Recipe, *, device: Device) -> list[list[float]]:
    outline, plan = planned.outline, planned.outline.plan
    assert plan is not None
    model = copy.deepcopy(outline.model).to_empty(device=device.torch_device).train()
    if recipe.precision == "16.16":
        halve_weights(model, getattr(torch, recipe.half_type))
    in_memory_format(model)
    _fill(model)
    weight = next(model.parameters())
    images = torch.zeros(outline.images, dtype=weight.dtype, device=weight.device)
    images = as_model_input(model, images.contiguous(memory_format=torch.channels_last))
    precision = choose_precision(recipe, device)
    with torch.random.fork_rng(devices=[]):
        return layer_seconds(plan.traced.on(model), images, device=device, precision=precision)


def _fill(model: nn.Module) -> None:
    """Plain values: arithmetic on leftovers of memory, such as denormal numbers, may be slower."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.fill_(0.01) if tensor.is_floating_point() else tensor.zero_()


def layer_seconds(
    traced: TracedModel, images: Tensor, *, device: Device, precision: Precision
) -> list[list[float]]:
    """The median forward and backward seconds of each layer, after a pass that is not counted."""
    runs = []
    for _ in range(1 + _REPEATS):
        clock = _Clock(traced, device, precision)
        clock.walk(images.clone())
        runs.append(clock.seconds)
    timed = runs[1:]
    return [[median(run[layer.node][part] for run in timed) for part in (0, 1)] for layer in traced.layers]


class _Clock(GraphWalk):
    """Runs each step of a graph alone, forward and backward, and times both."""

    def __init__(self, traced: TracedModel, device: Device, precision: Precision) -> None:
        super().__init__(traced.model, graph=traced.graph)
        self._traced, self._device, self._precision = traced, device, precision
        self.seconds: dict[Node, tuple[float, float]] = {}

    def run_node(self, n: Node) -> Any:
        for value in n.all_input_nodes:
            if value.op != "get_attr":
                self.env[value] = _own_input(self.env[value])
        with self._timed() as forward, torch.enable_grad(), self._precision.autocast():
            result = super().run_node(n)
        with self._timed() as backward:
            _go_back(result)
        self.seconds[n] = (forward[0], backward[0])
        return result

    @contextmanager
    def _timed(self) -> Iterator[list[float]]:
        found: list[float] = []
        self._device.synchronise()
        start_s = time.perf_counter()
        yield found
        self._device.synchronise()
        found.append(time.perf_counter() - start_s)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        return self._traced.attribute(target)


def _go_back(result: Any) -> None:
    """The backward pass of one step: its inputs are the ends of its graph."""
    roots = [value for value in _tensors(result) if value.grad_fn is not None]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(value) for value in roots])


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return (
        [value for value in result if isinstance(value, Tensor)] if isinstance(result, list | tuple) else []
    )


def _own_input(value: Any) -> Any:
    """A value without the steps before it, which a step may also change in place."""
    if isinstance(value, Tensor):
        cut = value.detach().requires_grad_(value.requires_grad)
        with torch.enable_grad():
            return cut.clone()
    if type(value) in (list, tuple):
        return type(value)(_own_input(each) for each in value)
    return value
