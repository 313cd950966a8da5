"""The state of a training program by name, whatever the ranks it lies on: what a checkpoint holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from drivetrain.devices.device import choose_device
from drivetrain.models.half_weights import widen_weights
from drivetrain.models.unsaved_buffers import take_over_buffers, unsaved_buffers
from drivetrain.passes.forward import Precision
from drivetrain.program.training import TrainingProgram
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.state.foreign_weights import bring_back, let_go
from drivetrain.state.share_state import own_buffers, own_values, share_program
from drivetrain.state.tensor_exchange import gather_tensors, hand_out_tensors

__all__ = [
    "ProgramState",
    "collect_state",
    "in_one_piece",
    "load_average",
    "load_state",
    "optimiser_states",
    "share_parts",
    "with_whole_model",
]


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
    whole = ProgramState(
        model=gather_tensors(own_values(program), devices=groups.devices, room=room.model),
        optimiser=gather_tensors(optimiser_states(program), devices=groups.devices, room=room.optimiser),
        averaged=_collect_average(program, room.averaged),
        buffers=gather_tensors(own_buffers(program), devices=groups.devices, room=room.buffers),
    )
    return whole if groups.devices.is_first else None


def _collect_average(program: TrainingProgram, room: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if program.average is None:
        return {}
    with program.average.in_place():
        return gather_tensors(_averaged_values(program), devices=program.groups.devices, room=room)


def _averaged_values(program: TrainingProgram) -> dict[str, Tensor]:
    """This rank's part of a model that has its averaged weights in place."""
    # Of 16-bit weights the average has more bits than the model can show.
    return own_values(program) | _averaged_weights(program)


def _averaged_weights(program: TrainingProgram) -> dict[str, Tensor]:
    assert program.average is not None
    return dict(program.parameters.named_views(program.average.averages[0]))


def share_parts(program: TrainingProgram, state: ProgramState | None) -> None:
    """Every rank takes its part of the first one's whole state, and all of its records.

    Without a state the model starts as the first rank has it, where other ranks' stages lie untouched. After
    that no rank has weights of stages that it does not run.
    """
    if program.groups.replicas.rank == 0:
        if program.group.is_first and state is None:
            state = ProgramState(model=program.model.state_dict(), buffers=unsaved_buffers(program.model))
        _hand_out(program, state or ProgramState(), devices=program.groups.devices)
    for column in program.records.columns.values():
        program.group.broadcast_(column)
    share_program(program, program.groups.replicas)
    let_go(program)


def load_state(program: TrainingProgram, state: ProgramState) -> None:
    """Takes over this rank's part of a whole state, in place; without an optimiser's state its own stays."""
    _hand_out(program, state, devices=ALONE)


def _hand_out(program: TrainingProgram, state: ProgramState, *, devices: ReplicaGroup) -> None:
    """The members take their parts of what the first of them has; it alone has any."""
    has_average, has_optimiser, has_buffers = devices.from_first(
        (bool(state.averaged), bool(state.optimiser), bool(state.buffers))
    )
    if program.average is not None:
        with program.average.in_place():
            hand_out_tensors(own_values(program), state.averaged or state.model, devices=devices)
        if has_average:
            hand_out_tensors(_averaged_weights(program), state.averaged, devices=devices)
    hand_out_tensors(own_values(program), state.model, devices=devices)
    if has_optimiser:
        hand_out_tensors(optimiser_states(program), state.optimiser, devices=devices)
    if has_buffers:
        hand_out_tensors(own_buffers(program), state.buffers, devices=devices)


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
    own, buffers = own_values(program), own_buffers(program)
    if program.average is not None:
        program.average.adopt()
        own |= _averaged_weights(program)
    places: dict[str, Tensor] = {}
    if devices.is_first:
        program.model.cpu()
        widen_weights(program.model)
        places = {**program.model.state_dict(), **unsaved_buffers(program.model)}
    gather_tensors({**own, **buffers}, devices=devices, room=places)
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
        average=None,
    )


def optimiser_states(program: TrainingProgram) -> dict[str, Tensor]:
    """The optimiser's state of every parameter here, by `state/parameter`, and that of the loss scale."""
    of_parameters = {
        f"{state}/{name}": view
        for state, flat in program.optimiser.states.items()
        for name, view in program.parameters.named_views(flat)
    }
    return of_parameters | ({} if program.loss_scale is None else program.loss_scale.states)


@torch.no_grad()
def load_average(program: TrainingProgram, stored: Mapping[str, Tensor]) -> None:
    """Takes over the averages of parameters with all their bits, which 16-bit weights have not."""
    if program.average is not None and stored:
        for name, average in _averaged_weights(program).items():
            average.copy_(stored[name])
