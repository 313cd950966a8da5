"""The state of a training program by name, whatever the ranks it lies on: what a checkpoint holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import torch
from torch import Tensor, nn

from drivetrain.devices.device import choose_device
from drivetrain.models.half_weights import widen_weights
from drivetrain.models.modules import take_over_buffers, unsaved_buffers
from drivetrain.passes.forward import Precision
from drivetrain.program.training import TrainingProgram
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.state.tensor_exchange import gather_tensors, hand_out_tensors

__all__ = [
    "ProgramState",
    "bring_back",
    "collect_state",
    "in_one_piece",
    "let_go",
    "load_average",
    "load_state",
    "optimiser_states",
    "own_buffers",
    "own_values",
    "share_parts",
    "share_program",
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


# Everything that one replica knows of a training and the others must know too.


@torch.no_grad()
def share_program(program: TrainingProgram, group: ReplicaGroup) -> None:
    """All replicas get the first one's weights, statistics, optimiser state and records, bit for bit."""
    if group.size == 1:
        return
    for tensor in _tensors(program):
        if tensor.is_contiguous():
            group.broadcast_(tensor)
        else:
            whole = tensor.contiguous()
            group.broadcast_(whole)
            tensor.copy_(whole)


def own_values(program: TrainingProgram) -> dict[str, Tensor]:
    """What of the model's state lives on this rank, as it lies there."""
    values: dict[str, Tensor] = program.model.state_dict()
    if program.stages is None:
        return values
    names = program.stages.state_names
    return {name: value for name, value in values.items() if name in names}


def own_buffers(program: TrainingProgram) -> dict[str, Tensor]:
    """The buffers on this rank that the model does not save."""
    buffers = unsaved_buffers(program.model)
    if program.stages is None:
        return buffers
    names = program.stages.buffer_names
    return {name: buffer for name, buffer in buffers.items() if name in names}


def _tensors(program: TrainingProgram) -> list[Tensor]:
    flat = [program.parameters.values, *program.batch_norms.statistics, *program.optimiser.states.values()]
    averages = [] if program.average is None else program.average.averages
    scale = [] if program.loss_scale is None else list(program.loss_scale.states.values())
    trained = {name for name, _ in program.parameters.named_views(program.parameters.values)}
    others = [value for name, value in own_values(program).items() if name not in trained]
    buffers = own_buffers(program).values()
    return [*flat, *averages, *scale, *others, *buffers, *program.records.columns.values()]


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
