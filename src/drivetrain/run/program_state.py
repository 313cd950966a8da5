"""The state of a training program by name, whatever the ranks it lies on: what a checkpoint holds."""

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from drivetrain.cluster.devices import choose_device
from drivetrain.errors import BadInputError
from drivetrain.program.forward import Precision
from drivetrain.program.half_weights import widen_weights
from drivetrain.program.training import TrainingProgram

__all__ = [
    "ProgramState",
    "collect_state",
    "copied_to_host",
    "in_one_piece",
    "load_average",
    "load_state",
    "optimiser_states",
    "share_parts",
    "with_whole_model",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramState:
    """Weights and buffers by their names in the model, the optimiser's state as `state/parameter`."""

    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    averaged: dict[str, Tensor]


def _own_state(program: TrainingProgram) -> ProgramState:
    """What lives on this rank, as it lies there."""
    averaged: dict[str, Tensor] = {}
    if program.average is not None:
        with program.average.in_place():
            averaged = {name: value.clone() for name, value in _own_values(program).items()}
        # Of 16-bit weights the average has more bits than the model can show.
        averaged |= dict(program.parameters.named_views(program.average.averages[0]))
    return ProgramState(model=_own_values(program), optimiser=optimiser_states(program), averaged=averaged)


def collect_state(program: TrainingProgram) -> ProgramState:
    """The whole state, on the first rank; where stages lie on several ranks, all of them must call this."""
    own = _own_state(program)
    groups = program.groups
    if groups.devices.size == 1 or groups.replicas.rank > 0:
        return own
    parts = groups.devices.gather(own if groups.devices.is_first else _on_host(own))
    return ProgramState(
        model=dict(ChainMap(*(part.model for part in parts))),
        optimiser=dict(ChainMap(*(part.optimiser for part in parts))),
        averaged=dict(ChainMap(*(part.averaged for part in parts))),
    )


@torch.no_grad()
def load_state(program: TrainingProgram, state: ProgramState) -> None:
    """Takes over this rank's part of a whole state, in place; without an optimiser's state its own stays."""
    if program.average is not None:
        with program.average.in_place():
            _copy(_own_values(program), state.averaged or state.model)
        load_average(program, state.averaged)
    _copy(_own_values(program), state.model)
    if state.optimiser:
        _copy(optimiser_states(program), state.optimiser)


def share_parts(program: TrainingProgram, state: ProgramState | None) -> None:
    """Every rank takes its part of the first one's whole state, and all of its records.

    Without a state the model starts as the first rank has it, where other ranks' stages lie untouched.
    """
    group = program.group
    sent: list[tuple[ProgramState, dict[str, Tensor]] | None] = [None]
    if group.is_first:
        state = state or ProgramState(model=program.model.state_dict(), optimiser={}, averaged={})
        sent = [(_on_host(state), _cpu(program.records.columns))]
    dist.broadcast_object_list(sent, src=0, group=group.process_group)
    assert sent[0] is not None
    whole, columns = sent[0]
    load_state(program, whole)
    for name, column in columns.items():
        program.records.columns[name].copy_(column)


def in_one_piece(program: TrainingProgram) -> TrainingProgram:
    """The program with the whole model, the averaged one where there is an average, on the first rank's CPU.

    Where stages lie on several ranks, all of them must call this, and none trains on; else it is as it was.
    """
    if program.groups.devices.size == 1:
        return program
    whole = collect_state(program)
    if not program.group.is_first:
        return program
    return with_whole_model(program, whole)


def with_whole_model(program: TrainingProgram, state: ProgramState) -> TrainingProgram:
    """The program with a stored whole model, for whoever only looks at it; other ranks take no part."""
    model = program.model.cpu()
    widen_weights(model)
    model.load_state_dict(state.averaged or state.model)
    return replace(
        program,
        model=model,
        forward=model,
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
        _copy(dict(program.parameters.named_views(program.average.averages[0])), stored)


def _own_values(program: TrainingProgram) -> dict[str, Tensor]:
    values: dict[str, Tensor] = program.model.state_dict()
    if program.stages is None:
        return values
    names = program.stages.state_names
    return {name: value for name, value in values.items() if name in names}


def copied_to_host(state: ProgramState, *, room: ProgramState | None = None) -> ProgramState:
    """A state that stays as it is while the training goes on; `room` is an earlier one, to be overwritten.

    Memory that has been written before takes a copy several times as fast as new memory.
    """
    room = room or ProgramState(model={}, optimiser={}, averaged={})
    return ProgramState(
        model=_copied(state.model, room.model),
        optimiser=_copied(state.optimiser, room.optimiser),
        averaged=_copied(state.averaged, room.averaged),
    )


def _copied(tensors: Mapping[str, Tensor], room: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: room[name].copy_(tensor.detach()) if name in room else tensor.detach().to("cpu", copy=True)
        for name, tensor in tensors.items()
    }


def _on_host(state: ProgramState) -> ProgramState:
    return ProgramState(
        model=_cpu(state.model), optimiser=_cpu(state.optimiser), averaged=_cpu(state.averaged)
    )


def _cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def _copy(own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
    for name, value in own.items():
        if name not in stored or stored[name].shape != value.shape:
            raise BadInputError(f"the checkpoint has no {name} that fits --model; --overwrite starts afresh.")
        value.copy_(stored[name])
