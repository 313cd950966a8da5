"""Which device each rank of a host takes."""

import torch

from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device, choose_device
from drivetrain.ranks.replica_group import ReplicaGroup

__all__ = ["check_enough_devices", "choose_rank_device"]


def choose_rank_device(name: str, group: ReplicaGroup) -> Device:
    """The device of this rank: each has an accelerator of its own, but any number share a CPU; a collective.

    A launcher either shows all accelerators of a host to each of its ranks or to each its own one.
    """
    device = choose_device(name)
    if not device.is_cpu:
        device = _own_device(device, name=name, group=group)
    _refuse_shared_device(device, group)
    return device


def check_enough_devices(name: str, *, replicas: int, per_replica: int) -> None:
    """Refuses more ranks on this machine than it has accelerators, and an accelerator for all of them."""
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
        f"--replicas {replicas}{each} needs {ranks} {kind} devices, and here are {there}; {fits}, and "
        "--device cpu runs any number as processes."
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
            f"{group.local_size} ranks on this host need {group.local_size} {kind} devices, and here are "
            f"{there}; start {there} ranks on each host, or add --device cpu."
        )
    torch.accelerator.set_device_index(index)
    return Device(torch_device=torch.device(kind, index), reason=f"rank {group.rank} of {group.size}")


def _refuse_index(name: str, *, ranks: int) -> None:
    kind, colon, _ = name.partition(":")
    if colon and ranks > 1:
        raise BadInputError(
            f"--device {name} is one device, and each of {ranks} ranks needs its own; --device {kind} works."
        )


def _refuse_shared_device(device: Device, group: ReplicaGroup) -> None:
    """Two ranks that see one accelerator each may see the same one."""
    own = None if device.is_cpu else device.hardware
    users = [rank for rank, hardware in enumerate(group.gather(own)) if hardware == own]
    if own is not None and len(users) > 1:
        raise BadInputError(
            f"The ranks {', '.join(map(str, users))} see the same {device.torch_device.type} device; let the "
            "launcher show each of them its own, or start one rank."
        )
