"""Validation through stages on several ranks, and the shapes of values between stages.

A rank sends its result and continues with the next images, so that several batches are in flight.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from drivetrain.models.modules import in_mode
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.runtime.channels import RankChannel, ValueSpec, memory_order, zeros_of
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.schedules.actions import Action, Edge, Kind, Schedule
from drivetrain.schedules.traffic import Message, messages

__all__ = ["StagedForward", "find_specs", "forward_in_turn"]

# Enough to keep the next stage busy; each batch in flight holds its messages in memory.
_BATCHES_UNDER_WAY = 2


def find_specs(
    plan: StagePlan,
    runners: Mapping[int, StageRunner],
    *,
    edges: Sequence[Edge],
    images: Tensor,
    devices: ReplicaGroup,
    as_trained: bool = False,
) -> dict[str, ValueSpec]:
    """Shape, type and memory order of the outputs of all stages, found by a pass of zeros; a collective.

    Each stage runs once, in its own precision, on the device it will run on. `as_trained` says whose values
    are asked for: those of training or of evaluation.
    """
    specs: dict[str, ValueSpec] = {}
    prepared = _prepared(runners, images)
    for stage, home in enumerate(plan.device_of):
        found = None
        if stage in runners:
            inputs = {
                edge.value: zeros_of(specs[edge.value], device=images.device)
                for edge in edges
                if edge.consumer == stage
            }
            # In eval mode, so that batch-norm statistics do not change.
            with in_mode(runners[stage].module, training=False), runners[stage].state.kept():
                outputs = runners[stage].evaluate(prepared, inputs, as_trained=as_trained)
            found = {name: _spec_of(value) for name, value in outputs.items()}
        specs |= devices.gather(found)[home if devices.size > 1 else 0]
    return specs


def _prepared(runners: Mapping[int, StageRunner], images: Tensor) -> Tensor:
    """The images after the pre-hooks of the whole model, if a stage of this process reads them."""
    reader = next((runner for runner in runners.values() if runner.reads_images), None)
    with torch.no_grad():
        return images if reader is None else reader.prepare(images)


def _spec_of(value: Tensor) -> ValueSpec:
    return ValueSpec(tuple(value.shape), value.dtype, memory_order(value))


def forward_in_turn(runners: Mapping[int, StageRunner], *, output: str) -> Callable[[Tensor], Tensor]:
    """From images to logits through all stages of one process, each in its own precision."""

    def forward(images: Tensor) -> Tensor:
        values: dict[str, Tensor] = {}
        prepared = _prepared(runners, images)
        for stage in sorted(runners):
            values |= runners[stage].evaluate(prepared, values)
        return values[output]

    return forward


class StagedForward:
    """A function from images to logits; on ranks without the last stage the logits are zeros.

    All ranks of a replica must call it with the same images; a rank whose stages do not read images may pass
    any of the same shape.
    """

    def __init__(
        self,
        *,
        plan: StagePlan,
        edges: Sequence[Edge],
        output: str,
        runners: Mapping[int, StageRunner],
        devices: ReplicaGroup,
        device: torch.device,
    ) -> None:
        self._plan, self._edges, self._output, self._runners = plan, edges, output, runners
        self._devices = devices
        self._specs: dict[tuple[int, ...], dict[str, ValueSpec]] = {}
        self._now: dict[str, ValueSpec] = {}
        self._channel = RankChannel(devices=devices, device=device, spec_of=self._spec_of)
        self._traffic = messages(_forward_table(plan), edges)
        own = range(len(plan.stages_on(devices.rank)))
        self._messages = sum(len(self._traffic.after(devices.rank, index)) for index in own)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Runs a batch of any size; a new size first runs once with zeros to find the shapes."""
        self._now = self._specs_of(images)
        device = self._devices.rank
        self._channel.begin(self._traffic.incoming(device))
        values: dict[str, Tensor] = {}
        prepared = _prepared(self._runners, images)
        for index, stage in enumerate(self._plan.stages_on(device)):
            for message in self._traffic.before(device, index):
                values[message.value] = self._channel.receive(message)
            values |= self._runners[stage].evaluate(prepared, values)
            for message in self._traffic.after(device, index):
                self._channel.send(message, values[message.value])
        # A stage that is faster than the next one must not pile up messages in memory.
        self._channel.hold_back(_BATCHES_UNDER_WAY * self._messages)
        if self._output in values:
            return values[self._output]
        return images.new_zeros(()).expand(self._now[self._output].shape)

    def _spec_of(self, message: Message) -> ValueSpec:
        return self._now[message.value]

    def _specs_of(self, images: Tensor) -> dict[str, ValueSpec]:
        shape = tuple(images.shape)
        if shape not in self._specs:
            self._specs[shape] = find_specs(
                self._plan,
                self._runners,
                edges=self._edges,
                images=torch.zeros_like(images),
                devices=self._devices,
            )
        return self._specs[shape]


def _forward_table(plan: StagePlan) -> Schedule:
    rows = [
        tuple(Action(Kind.FORWARD, stage, 0) for stage in plan.stages_on(device))
        for device in range(plan.devices)
    ]
    return Schedule(name="forward", micro_batches=1, device_of=plan.device_of, table=tuple(rows))
