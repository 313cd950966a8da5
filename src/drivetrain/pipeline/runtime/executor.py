"""Executes any schedule: on a rank for its own device, or in one process for all devices."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from drivetrain.core.errors import RunFailedError
from drivetrain.passes.update_batches import NumberedBatch
from drivetrain.pipeline.runtime.channels import Channel
from drivetrain.pipeline.runtime.stage_runner import Pass, StageRunner
from drivetrain.schedules.actions import Action, Dependencies, Edge, Kind, Schedule
from drivetrain.schedules.observer import Observer, observed
from drivetrain.schedules.traffic import Message, Traffic

__all__ = ["Executor", "UpdateWork"]


@dataclass(slots=True, kw_only=True)
class UpdateWork:
    """The work of one update: its schedule, its messages, and an iterator of its micro-batches."""

    update: int
    share: float
    schedule: Schedule
    traffic: Traffic
    batches: Iterator[NumberedBatch]
    _fetched: dict[int, NumberedBatch] = field(default_factory=dict)
    _images: dict[int, Tensor] = field(default_factory=dict)
    _count: int = 0

    def batch(self, micro_batch: int) -> NumberedBatch:
        """A micro-batch, fetched when the first stage needs it."""
        while micro_batch >= self._count:
            self._fetched[self._count] = next(self.batches)
            self._count += 1
        return self._fetched[micro_batch]

    def images(self, micro_batch: int, prepare: Callable[[Tensor], Tensor]) -> Tensor:
        """The images of a micro-batch, prepared once for all stages."""
        if micro_batch not in self._images:
            self._images[micro_batch] = prepare(self.batch(micro_batch).batch.images)
        return self._images[micro_batch]

    def drop(self, micro_batch: int) -> None:
        """Frees a micro-batch once every stage of this process has read it."""
        del self._fetched[micro_batch]
        self._images.pop(micro_batch, None)


@dataclass(slots=True)
class _Lane:
    """The row of one device, and its next action."""

    device: int
    row: Sequence[Action]
    position: int = 0

    @property
    def is_done(self) -> bool:
        return self.position == len(self.row)


class Executor:
    """Runs the stages of this process according to a schedule.

    `on_stage_done` is called for each stage whose gradients are complete, so that their all-reduce can start.
    `largest_live` is, per stage, the largest number of micro-batches held at the same time.
    """

    def __init__(
        self,
        *,
        runners: Mapping[int, StageRunner],
        edges: Sequence[Edge],
        channel: Channel,
        on_stage_done: Callable[[int], None],
    ) -> None:
        self.largest_live = dict.fromkeys(runners, 0)
        self.observer: Observer | None = None
        self.channel = channel
        self._runners = runners
        stages = 1 + max([*runners, *(edge.consumer for edge in edges)])
        self._dependencies = Dependencies(edges, stages=stages)
        self._on_stage_done = on_stage_done
        self._begun: dict[int, int] = {}
        self._ended = dict.fromkeys(runners, 0)
        # Keys: name of the value, micro-batch, consuming stage.
        self._values: dict[tuple[str, int, int], Tensor] = {}
        self._gradients: dict[tuple[str, int, int], Tensor] = {}
        self._received: dict[tuple[int, int], list[Tensor]] = {}

    def run(self, work: UpdateWork) -> None:
        """Runs the passes of one update for all devices of this process."""
        schedule = work.schedule
        here = sorted({schedule.device_of[stage] for stage in self._runners})
        lanes = [_Lane(device, schedule.table[device]) for device in here]
        for lane in lanes:
            self.channel.begin(work.traffic.incoming(lane.device))
        while not all(lane.is_done for lane in lanes):
            moved = [self._go_on(lane, work) for lane in lanes]
            if not any(moved):
                raise RunFailedError(f"The {schedule.name} schedule is deadlocked: no device can continue.")
        self.channel.finish()
        # Exhaust the iterator: a feed may clean up after its last micro-batch.
        for _ in work.batches:
            pass

    def _go_on(self, lane: _Lane, work: UpdateWork) -> bool:
        """Runs the actions of a device until a message is missing; False if it could run none."""
        start = lane.position
        while not lane.is_done:
            needed = work.traffic.before(lane.device, lane.position)
            if not all(map(self.channel.has, needed)):
                break
            self._perform(lane, work, needed)
            lane.position += 1
        return lane.position > start

    def _perform(self, lane: _Lane, work: UpdateWork, needed: Sequence[Message]) -> None:
        device, action = lane.device, lane.row[lane.position]
        if self.observer is not None:
            self.observer.begins(device, action)
        if action.kind is Kind.FORWARD:
            with observed(self.observer, device, "data", action):
                work.batch(action.micro_batch)
        if needed:
            with observed(self.observer, device, "wait", action):
                self._receive(action, needed)
        with observed(self.observer, device, action.kind.name.lower(), action):
            values = self._compute(action, work)
        self._keep_shared(action, values)
        leaving = work.traffic.after(device, lane.position)
        if leaving:
            with observed(self.observer, device, "send", action):
                for message in leaving:
                    self.channel.send(message, values[message.value])
        self._hand_on(action, values, schedule=work.schedule)
        if action.kind in (Kind.BACKWARD, Kind.WEIGHT):
            self._end(action, work)

    def _receive(self, action: Action, needed: Sequence[Message]) -> None:
        store = self._values if action.kind is Kind.FORWARD else self._gradients
        for message in needed:
            reader = message.from_stage if message.is_gradient else message.to_stage
            value = store[message.value, action.micro_batch, reader] = self.channel.receive(message)
            self._received.setdefault((action.stage, action.micro_batch), []).append(value)

    def _keep_shared(self, action: Action, values: Mapping[str, Tensor]) -> None:
        """Withholds received buffers from reuse if an output shares their memory, as views do."""
        received = self._received.get((action.stage, action.micro_batch))
        if received:
            handed_on = {value.untyped_storage().data_ptr() for value in values.values()}
            received[:] = [one for one in received if one.untyped_storage().data_ptr() not in handed_on]

    def _compute(self, action: Action, work: UpdateWork) -> dict[str, Tensor]:
        """Runs an action; returns the values (forward) or gradients (backward) for other stages."""
        runner = self._runners[action.stage]
        if action.kind is Kind.FORWARD:
            return self._forward(runner, action, work)
        if action.kind is Kind.WEIGHT:
            runner.finish_weights(action.micro_batch)
            return {}
        return runner.backward(action.micro_batch, self._collected(action))

    def _forward(self, runner: StageRunner, action: Action, work: UpdateWork) -> dict[str, Tensor]:
        stage, micro_batch = action.stage, action.micro_batch
        numbered = work.batch(micro_batch)
        images = work.images(micro_batch, runner.prepare) if runner.reads_images else numbered.batch.images
        inputs = {
            name: images if name == runner.images else self._values.pop((name, micro_batch, stage))
            for name in runner.module.stage_facts.inputs
        }
        place = Pass(
            update=work.update,
            number=numbered.number,
            share=work.share,
            slots=numbered.batch.slots,
            labelled=replace(numbered.batch, images=torch.empty(0)),
            images=images if runner.runs_hooks else None,
        )
        self._begun[micro_batch] = self._begun.get(micro_batch, 0) + 1
        if self._begun[micro_batch] == len(self._runners):
            del self._begun[micro_batch]
            work.drop(micro_batch)
        outputs = runner.forward(micro_batch, place, inputs)
        self.largest_live[stage] = max(self.largest_live[stage], runner.live)
        return outputs

    def _collected(self, action: Action) -> dict[str, list[Tensor]]:
        """The gradients of a stage's outputs, from their last reader to the first.

        That is the order in which autograd adds them up in a model that is not split.
        """
        gradients: dict[str, list[Tensor]] = {}
        for edge in reversed(self._dependencies.readers(action.stage)):
            key = (edge.value, action.micro_batch, edge.consumer)
            if key in self._gradients:
                gradients.setdefault(edge.value, []).append(self._gradients.pop(key))
        return gradients

    def _hand_on(self, action: Action, values: Mapping[str, Tensor], *, schedule: Schedule) -> None:
        """Stores results for other stages of the same device, which need no message."""
        is_forward = action.kind is Kind.FORWARD
        store = self._values if is_forward else self._gradients
        edges = self._dependencies.readers if is_forward else self._dependencies.sources
        for edge in edges(action.stage):
            is_local = schedule.device_of[edge.producer] == schedule.device_of[edge.consumer]
            if is_local and edge.value in values:
                store[edge.value, action.micro_batch, edge.consumer] = values[edge.value]

    def _end(self, action: Action, work: UpdateWork) -> None:
        """Frees what a stage held of a micro-batch; after the last one reports the stage as done."""
        self.channel.recycle(self._received.pop((action.stage, action.micro_batch), []))
        self._ended[action.stage] += 1
        if self._ended[action.stage] == work.schedule.micro_batches:
            self._ended[action.stage] = 0
            self._on_stage_done(action.stage)
