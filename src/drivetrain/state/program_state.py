"""Collects the state of a program from all ranks, restores it, and shares it between ranks.

Also frees the weights of stages that run on other ranks (`let_go`), and brings them back.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

import torch
from torch import Tensor, nn

from drivetrain.devices.device import choose_device
from drivetrain.models.half_weights import widen_weights
from drivetrain.models.module_values import take_over_attributes
from drivetrain.models.modules import take_over_unsaved, unsaved_buffers, unsaved_values
from drivetrain.passes.forward import Precision
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.state.own_state import OwnState, own_state
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


def let_go(program: TrainingProgram) -> None:
    """Frees the memory of weights whose stages run on other ranks; do not read them until `bring_back`.

    Every rank builds the whole model, so that all ranks find the same stages. Names and shapes stay.
    """
    for weight in _foreign(program):
        weight.untyped_storage().resize_(0)


def bring_back(program: TrainingProgram) -> None:
    """Allocates the freed weights again; their values are undefined until something is loaded."""
    for weight in _foreign(program):
        if not weight.untyped_storage().nbytes():
            weight.untyped_storage().resize_(_extent_bytes(weight))


def _foreign(program: TrainingProgram) -> Iterator[nn.Parameter]:
    """Weights of other ranks' stages whose memory no weight or buffer of this rank shares."""
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
    """Bytes from the start of the storage to the last element of the tensor."""
    steps = zip(weight.shape, weight.stride(), strict=True)
    last = int(weight.storage_offset()) + sum((size - 1) * stride for size, stride in steps)
    return (last + 1) * weight.itemsize if weight.numel() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramState:
    """The whole state as a checkpoint holds it: tensors by their names in the model, the optimiser's as
    `state/parameter`; `buffers` are the non-persistent ones, missing in `state_dict()`, and other attributes
    that a pass changes."""

    model: dict[str, Tensor] = field(default_factory=dict)
    optimiser: dict[str, Tensor] = field(default_factory=dict)
    averaged: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)


def collect_state(program: TrainingProgram, *, room: ProgramState | None = None) -> ProgramState | None:
    """Copies the whole state to host memory of rank 0; None on other ranks. A collective with stages.

    `room` is an earlier copy to overwrite: copying into memory that was written before is several times as
    fast as into new memory, whose pages the kernel must map first.
    """
    groups, room = program.groups, room or ProgramState()
    if groups.replicas.rank > 0:
        return None
    own = own_state(program)
    whole = ProgramState(
        model=gather_tensors(own.model, devices=groups.devices, room=room.model),
        optimiser=gather_tensors(own.optimiser, devices=groups.devices, room=room.optimiser),
        averaged=_collect_average(program, room.averaged),
        buffers=_collect_unsaved(program, own, room.buffers),
    )
    return whole if groups.devices.is_first else None


def _collect_unsaved(
    program: TrainingProgram, own: OwnState, room: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    # Attributes may change their shape or type, and so take no room of an earlier copy.
    lasting = {name: room[name] for name in unsaved_buffers(program.model).keys() & room.keys()}
    return gather_tensors(own.buffers | own.attributes, devices=program.groups.devices, room=lasting)


def _collect_average(program: TrainingProgram, room: Mapping[str, Tensor]) -> dict[str, Tensor]:
    average = program.mover.average
    if average is None:
        return {}
    with average.in_place():
        own = own_state(program)
        return gather_tensors(own.model | own.averaged, devices=program.groups.devices, room=room)


class Taking(Protocol):
    """How the tensors of this rank are overwritten by stored ones, one method per part."""

    def model(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        """The model's state."""

    def averaged(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        """The averages of trained weights."""

    def optimiser(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        """The optimiser's state."""

    def buffers(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        """The buffers that the model does not save."""

    def attributes(self, stored: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The stored attributes, on every rank."""
        ...


def take_over(program: TrainingProgram, stored: ProgramState, *, way: Taking) -> None:
    """Loads a stored state; if it has no average, the average starts from the stored weights."""
    own = own_state(program)
    if own.average is not None:
        with own.average.in_place():
            way.model(own.model, stored.averaged or stored.model)
        way.averaged(own.averaged, stored.averaged)
    way.model(own.model, stored.model)
    way.optimiser(own.optimiser, stored.optimiser)
    way.buffers(own.buffers, stored.buffers)
    buffers = unsaved_buffers(program.model)
    attributes = {name: value for name, value in stored.buffers.items() if name not in buffers}
    take_over_attributes(program.model, way.attributes(attributes))


class _HandingOut:
    """Rank 0 of `devices` holds the stored state and sends every member its part."""

    def __init__(self, devices: ReplicaGroup) -> None:
        self._devices = devices

    def model(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        hand_out_tensors(own, stored, devices=self._devices)

    def averaged(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        if self._devices.from_first(bool(stored)):
            hand_out_tensors(own, stored, devices=self._devices)

    optimiser = buffers = averaged

    def attributes(self, stored: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return _from_first(stored, self._devices)


def load_state(program: TrainingProgram, state: ProgramState) -> None:
    """Loads this rank's part of a whole state in place; keeps the optimiser state if none is stored."""
    take_over(program, state, way=_HandingOut(ALONE))


def share_parts(program: TrainingProgram, state: ProgramState | None) -> None:
    """Sends every rank its part of the state of rank 0, and all records; then frees foreign weights.

    Without a state, training starts from the initial weights of rank 0, which still holds the whole model.
    """
    if program.groups.replicas.rank == 0:
        if program.group.is_first and state is None:
            state = ProgramState(model=program.model.state_dict(), buffers=unsaved_values(program.model))
        take_over(program, state or ProgramState(), way=_HandingOut(program.groups.devices))
    _broadcast(own_state(program).records.values(), program.group)
    share_program(program, program.groups.replicas)
    let_go(program)


@torch.no_grad()
def share_program(program: TrainingProgram, group: ReplicaGroup) -> None:
    """Broadcasts weights, statistics, optimiser state and records of the first replica to all others."""
    if group.size > 1:
        own = own_state(program)
        _broadcast(own.tensors(), group)
        take_over_attributes(program.model, _from_first(own.attributes, group))


def _from_first(attributes: Mapping[str, Tensor], group: ReplicaGroup) -> Mapping[str, Tensor]:
    """The attributes of the first member. They are few, and other members may not know their shapes yet."""
    own = {name: value.cpu() for name, value in attributes.items()} if group.is_first else None
    found: Mapping[str, Tensor] = group.from_first(own)
    return found


def _broadcast(tensors: Iterable[Tensor], group: ReplicaGroup) -> None:
    for tensor in tensors:
        whole = tensor.contiguous()
        group.broadcast_(whole)
        if whole is not tensor:
            tensor.copy_(whole)


@torch.no_grad()
def in_one_piece(program: TrainingProgram) -> TrainingProgram:
    """The program with the whole model on the CPU of rank 0, with averaged weights if there are any.

    With stages on several ranks this is a collective, and ends the training; otherwise nothing changes.
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
    parts = {**own.model, **own.averaged, **own.buffers, **own.attributes}
    whole = gather_tensors(parts, devices=devices, room=places)
    take_over_attributes(program.model, {name: whole[name] for name in whole.keys() - places.keys()})
    return _whole(program) if devices.is_first else program


def with_whole_model(program: TrainingProgram, state: ProgramState) -> TrainingProgram:
    """The program with a whole model loaded from a checkpoint, for evaluation only; not a collective."""
    model = program.model.cpu()
    widen_weights(model)
    model.load_state_dict(state.averaged or state.model)
    take_over_unsaved(model, state.buffers)
    return _whole(program)


def _whole(program: TrainingProgram) -> TrainingProgram:
    """The program as one process with the whole model on its CPU."""
    return replace(
        program,
        forward=program.model,
        device=choose_device("cpu"),
        precision=Precision(compute_dtype=torch.float32, device_type="cpu"),
        stages=None,
        mover=replace(program.mover, average=None),
    )
