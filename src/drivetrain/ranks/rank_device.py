"""Chooses the device of each rank, and refuses layouts for which a host has too few."""

import torch

from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device, choose_device
from drivetrain.ranks.replica_group import ReplicaGroup

__all__ = ["check_enough_devices", "choose_rank_device"]


def choose_rank_device(name: str, group: ReplicaGroup) -> Device:
    """The device of this rank: an accelerator of its own, or the CPU that any number of ranks share.

    A collective. A launcher makes either all accelerators of a host visible to every rank, or one to each.
    """
    device = choose_device(name)
    if not device.is_cpu:
        device = _own_device(device, name=name, group=group)
    _refuse_shared_device(device, group)
    return device


def check_enough_devices(name: str, *, replicas: int, per_replica: int) -> None:
    """Refuses more ranks than this machine has accelerators, and one accelerator named for several ranks."""
    device, ranks = choose_device(name), replicas * per_replica
    if device.is_cpu:
        return
    _refuse_index(name, ranks=ranks)
    kind, there = device.torch_device.type, torch.accelerator.device_count()
    if ranks <= there:
        return
    each = "" if per_replica == 1 else f" of {per_replica} devices each"
    fits = f"--replicas {there // per_replica} fits" if there >= per_replica else f"--stages {there} fits"
    raise BadInputError(
        f"--replicas {replicas}{each} needs {ranks} {kind} devices, but this machine has {there}; "
        f"{fits}, and --device cpu runs any number of ranks."
    )


def _own_device(device: Device, *, name: str, group: ReplicaGroup) -> Device:
    kind, there = device.torch_device.type, torch.accelerator.device_count()
    if group.local_size == 1 and device.torch_device.index is not None:
        return device
    _refuse_index(name, ranks=group.local_size)
    if group.local_size <= there:
        index = group.local_rank
    elif there == 1:
        index = 0
    else:
        raise BadInputError(
            f"{group.local_size} ranks on this host need {group.local_size} {kind} devices, but it has "
            f"{there}; start {there} ranks on each host, or add --device cpu."
        )
    torch.accelerator.set_device_index(index)
    return Device(torch_device=torch.device(kind, index), reason=f"rank {group.rank} of {group.size}")


def _refuse_index(name: str, *, ranks: int) -> None:
    kind, colon, _ = name.partition(":")
    if colon and ranks > 1:
        raise BadInputError(
            f"--device {name} is one device, but each of {ranks} ranks needs its own; --device {kind} works."
        )


def _refuse_shared_device(device: Device, group: ReplicaGroup) -> None:
    """Refuses two ranks on one accelerator, which happens if each sees one device and it is the same."""
    own = None if device.is_cpu else device.hardware
    users = [rank for rank, hardware in enumerate(group.gather(own)) if hardware == own]
    if own is not None and len(users) > 1:
        raise BadInputError(
            f"Ranks {', '.join(map(str, users))} use the same {device.torch_device.type} device; configure "
            "the launcher to give each rank a device of its own, or start one rank."
        )
