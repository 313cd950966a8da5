"""Sends named tensors between the ranks of a replica, one after the other.

Each tensor goes directly from the rank that holds it to the rank that needs it; nothing is broadcast, padded
or packed with others.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.runtime.channels import ValueSpec, from_wire, to_wire, wire_spec
from drivetrain.ranks.replica_group import ReplicaGroup

__all__ = ["gather_tensors", "hand_out_tensors"]

_Looks = dict[str, ValueSpec]


@torch.no_grad()
def gather_tensors(
    own: Mapping[str, Tensor], *, devices: ReplicaGroup, room: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Collects the tensors of all ranks in host memory of the first; returns nothing on the others.

    Tensors of the same name in `room` are overwritten and reused. If several ranks have a tensor of one
    name, the first rank's is taken.
    """
    looks: list[_Looks] = devices.gather(_looks(own))
    if not devices.is_first:
        for name in _news(looks, devices.rank):
            _send(own[name], devices, to=0)
        return {}
    whole = {name: _copied(value, room.get(name)) for name, value in own.items()}
    for sender in range(1, devices.size):
        for name in _news(looks, sender):
            target = room[name] if name in room else _new(looks[sender][name])
            _receive_into(target, devices, sender=sender)
            whole[name] = target
    return whole


@torch.no_grad()
def hand_out_tensors(
    own: Mapping[str, Tensor], stored: Mapping[str, Tensor], *, devices: ReplicaGroup
) -> None:
    """Overwrites the tensors of every rank with the values that the first rank holds under their names."""
    looks: list[_Looks] = devices.gather(_looks(own))
    missing = devices.from_first(_missing(looks, stored) if devices.is_first else None)
    if missing is not None:
        raise BadInputError(
            f"the checkpoint has no tensor {missing} that fits --model; --overwrite starts afresh."
        )
    if not devices.is_first:
        for value in own.values():
            _receive_into(value, devices, sender=0)
        return
    for member in range(1, devices.size):
        for name, look in looks[member].items():
            _send(stored[name].to(look.dtype), devices, to=member)
    for name, value in own.items():
        value.copy_(stored[name])


def _looks(tensors: Mapping[str, Tensor]) -> _Looks:
    return {name: _look(value) for name, value in tensors.items()}


def _look(value: Tensor) -> ValueSpec:
    return ValueSpec(tuple(value.shape), value.dtype)


def _news(looks: list[_Looks], sender: int) -> list[str]:
    """Names that a rank has and no rank before it."""
    known = {name for before in looks[:sender] for name in before}
    return [name for name in looks[sender] if name not in known]


def _missing(looks: list[_Looks], stored: Mapping[str, Tensor]) -> str | None:
    wanted = {name: look for each in looks for name, look in each.items()}
    fits = {name for name, value in stored.items() if name in wanted and value.shape == wanted[name].shape}
    return next((name for name in wanted if name not in fits), None)


def _copied(value: Tensor, place: Tensor | None) -> Tensor:
    return value.detach().to("cpu", copy=True) if place is None else place.copy_(value.detach())


def _new(look: ValueSpec) -> Tensor:
    sent = wire_spec(look)
    return from_wire(torch.empty(sent.shape, dtype=sent.dtype), spec=look)


def _send(value: Tensor, devices: ReplicaGroup, *, to: int) -> None:
    if value.numel():
        devices.send(to_wire(value.detach().cpu()), to=to)


def _receive_into(target: Tensor, devices: ReplicaGroup, *, sender: int) -> None:
    if not target.numel():
        return
    wire = to_wire(target.detach()) if target.device.type == "cpu" else to_wire(_new(_look(target)))
    devices.receive_(wire, sender=sender)
    if wire.data_ptr() != target.data_ptr():
        target.copy_(from_wire(wire, spec=_look(target)))
