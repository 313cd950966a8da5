"""The state of a training program by name, whatever the ranks it lies on: what a checkpoint holds."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

import torch
from torch import Tensor, nn

from drivetrain.devices.device import choose_device
from drivetrain.models.half_weights import widen_weights
from drivetrain.models.modules import take_over_buffers, unsaved_buffers
from drivetrain.passes.forward import Precision
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.state.own_state import own_state
from drivetrain.state.tensor_exchange import gather_tensors, hand_out_tensors

__all__ = [
    "ProgramState",
    "bring_back",
    "collect_state",
    "in_one_piece",
    "let_go",
    "load_state",
    "share_parts",
    "share_program",
    "take_over",
    "with_whole_model",
]


# Weights of stages that other ranks run: their memory is given up while the training goes on.
#
# A rank builds the whole model, so that its stages are those of all others. Shapes and names stay.


def let_go(program: TrainingProgram) -> None:
    """Frees the weights that are trained elsewhere; nobody may read them until `bring_back`."""
    for weight in _foreign(program):
        weight.untyped_storage().resize_(0)


def bring_back(program: TrainingProgram) -> None:
    """Gives them memory again, for values to come."""
    for weight in _foreign(program):
        if not weight.untyped_storage().nbytes():
            weight.untyped_storage().resize_(_extent_bytes(weight))


def _foreign(program: TrainingProgram) -> Iterator[nn.Parameter]:
    """Weights of which nothing that lives here shares the memory."""
    if program.stages is None or program.groups.devices.size == 1:
        return
    own_names = program.stages.parameter_names
    named = list(program.model.named_parameters(remove_duplicate=False))
    own = {id(weight) for name, weight in named if name in own_names}
    kept = chain((weight for _, weight in named if id(weight) in own), program.model.buffers())
    held = {tensor.untyped_storage()._cdata for tensor in kept}
    for _, weight in program.model.named_parameters():
        if id(weight) not in own and weight.untyped_storage()._cdata not in held:
            yield weight


def _extent_bytes(weight: nn.Parameter) -> int:
    """The memory from a tensor's storage's beginning to its last element."""
    steps = zip(weight.shape, weight.stride(), strict=True)
    last = int(weight.storage_offset()) + sum((size - 1) * stride for size, stride in steps)
    return (last + 1) * weight.itemsize if weight.numel() else 0


# The whole state, whatever the ranks on which its parts lie.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramState:
    """Weights and buffers by their names in the model, the optimiser's state as `state/parameter`.

    `buffers` are those that the model itself does not save.
    """

    model: dict[str, Tensor] = field(default_factory=dict)
    optimiser: dict[str, Tensor] = field(default_factory=dict)
    averaged: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)


def collect_state(program: TrainingProgram, *, room: ProgramState | None = None) -> ProgramState | None:
    """A copy of the whole state in host memory on the first rank, which stays as it is while the training
    goes on; None elsewhere. Where stages lie on several ranks, all of them must call this.

    `room` is an earlier copy, to be overwritten: memory that has been written before takes a copy several
    times as fast as new memory.
    """
    groups, room = program.groups, room or ProgramState()
    if groups.replicas.rank > 0:
        return None
    own = own_state(program)
    whole = ProgramState(
        model=gather_tensors(own.model, devices=groups.devices, room=room.model),
        optimiser=gather_tensors(own.optimiser, devices=groups.devices, room=room.optimiser),
        averaged=_collect_average(program, room.averaged),
        buffers=gather_tensors(own.buffers, devices=groups.devices, room=room.buffers),
    )
    return whole if groups.devices.is_first else None


def _collect_average(program: TrainingProgram, room: Mapping[str, Tensor]) -> dict[str, Tensor]:
    average = program.mover.average
    if average is None:
        return {}
    with average.in_place():
        own = own_state(program)
        return gather_tensors(own.model | own.averaged, devices=program.groups.devices, room=room)


class Taking(Protocol):
    """How this rank's tensors of a part take over stored ones, in place."""

    def model(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        """The model's state."""

    def averaged(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        """The averages of trained weights."""

    def optimiser(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        """The optimiser's state."""

    def buffers(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        """The buffers that the model does not save."""


def take_over(program: TrainingProgram, stored: ProgramState, *, way: Taking) -> None:
    """The program goes on from a stored state; without a stored average its own begins at the weights."""
    own = own_state(program)
    if own.average is not None:
        with own.average.in_place():
            way.model(own.model, stored.averaged or stored.model)
        way.averaged(own.averaged, stored.averaged)
    way.model(own.model, stored.model)
    way.optimiser(own.optimiser, stored.optimiser)
    way.buffers(own.buffers, stored.buffers)


class _HandingOut:
    """The members take their parts of what the first of them has; it alone has any."""

    def __init__(self, devices: ReplicaGroup) -> None:
        self._devices = devices

    def model(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        hand_out_tensors(own, stored, devices=self._devices)

    def averaged(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        if self._devices.from_first(bool(stored)):
            hand_out_tensors(own, stored, devices=self._devices)

    optimiser = buffers = averaged


def load_state(program: TrainingProgram, state: ProgramState) -> None:
    """Takes over this rank's part of a whole state, in place; without an optimiser's state its own stays."""
    take_over(program, state, way=_HandingOut(ALONE))


def share_parts(program: TrainingProgram, state: ProgramState | None) -> None:
    """Every rank takes its part of the first one's whole state, and all of its records.

    Without a state the model starts as the first rank has it, where other ranks' stages lie untouched. After
    that no rank has weights of stages that it does not run.
    """
    if program.groups.replicas.rank == 0:
        if program.group.is_first and state is None:
            state = ProgramState(model=program.model.state_dict(), buffers=unsaved_buffers(program.model))
        take_over(program, state or ProgramState(), way=_HandingOut(program.groups.devices))
    _broadcast(own_state(program).records.values(), program.group)
    share_program(program, program.groups.replicas)
    let_go(program)


@torch.no_grad()
def share_program(program: TrainingProgram, group: ReplicaGroup) -> None:
    """All replicas get the first one's weights, statistics, optimiser state and records, bit for bit."""
    if group.size > 1:
        _broadcast(own_state(program).tensors(), group)


def _broadcast(tensors: Iterable[Tensor], group: ReplicaGroup) -> None:
    for tensor in tensors:
        whole = tensor.contiguous()
        group.broadcast_(whole)
        if whole is not tensor:
            tensor.copy_(whole)


@torch.no_grad()
def in_one_piece(program: TrainingProgram) -> TrainingProgram:
    """The program with the whole model, the averaged one where there is an average, on the first rank's CPU.

    Where stages lie on several ranks, all of them must call this, and none trains on; else it is as it was.
    """
    devices = program.groups.devices
    if devices.size == 1:
        return program
    bring_back(program)
    if program.groups.replicas.rank > 0:
        return program
    own = own_state(program)
    if own.average is not None:
        own.average.adopt()
    places: dict[str, Tensor] = {}
    if devices.is_first:
        program.model.cpu()
        widen_weights(program.model)
        places = {**program.model.state_dict(), **unsaved_buffers(program.model)}
    gather_tensors({**own.model, **own.averaged, **own.buffers}, devices=devices, room=places)
    return _whole(program) if devices.is_first else program


def with_whole_model(program: TrainingProgram, state: ProgramState) -> TrainingProgram:
    """The program with a stored whole model, for whoever only looks at it; other ranks take no part."""
    model = program.model.cpu()
    widen_weights(model)
    model.load_state_dict(state.averaged or state.model)
    take_over_buffers(model, state.buffers)
    return _whole(program)


def _whole(program: TrainingProgram) -> TrainingProgram:
    """The program as that of a process with the whole model on its CPU."""
    return replace(
        program,
        forward=program.model,
        device=choose_device("cpu"),
        precision=Precision(compute_dtype=torch.float32, device_type="cpu"),
        stages=None,
        mover=replace(program.mover, average=None),
    )
