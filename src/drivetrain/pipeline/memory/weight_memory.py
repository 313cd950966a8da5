"""The memory of weights, gradients and optimiser states of a device, and a counter of live tensors."""

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from drivetrain.models.half_weights import widened
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.optim.optimiser import BuildOptimiser, Optimiser

__all__ = ["LiveBytes", "WeightBytes", "states_and_update_bytes", "storage_key", "weight_bytes"]


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the memory of tensors made inside the block, real or fake; older tensors do not count.

    Workspaces of kernels, such as cuDNN's, are not seen.
    """

    def __init__(self, *, before: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.peak_bytes = 0
        self.largest_bytes = 0
        self._held: dict[int, int] = {}
        self._before = {storage_key(tensor) for tensor in before}

    def bytes_of(self, storages: Iterable[int]) -> int:
        """The bytes of those storages that were made inside the block and still exist."""
        return sum(self._held.get(key, 0) for key in set(storages))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for output in tree_iter(outputs):
            if isinstance(output, Tensor):
                self._note(output)
        return outputs

    def _note(self, tensor: Tensor) -> None:
        key = storage_key(tensor)
        if key in self._held or key in self._before:
            return
        storage = tensor.untyped_storage()
        self._held[key] = storage.nbytes()
        # On the storage, not the tensor: a view keeps the memory alive after its base tensor is gone.
        weakref.finalize(storage, self._forget, key)
        self.live_bytes += storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self.largest_bytes = max(self.largest_bytes, storage.nbytes())

    def _forget(self, key: int) -> None:
        self.live_bytes -= self._held.pop(key)


def storage_key(tensor: Tensor) -> int:
    """A key that is equal for tensors that share memory; valid only while one of them exists."""
    return int(tensor.untyped_storage()._cdata)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """The memory a device holds for the whole training, and the temporary memory of an update."""

    parameters: int
    gradients: int
    optimiser_states: int
    update: int

    @property
    def lasting(self) -> int:
        return self.parameters + self.gradients + self.optimiser_states


def weight_bytes(
    modules: Sequence[nn.Module], *, build_optimiser: BuildOptimiser, offloads_states: bool
) -> WeightBytes:
    """The bytes of the modules of one device, whose trained weights form one flat vector."""
    weights = _distinct(chain.from_iterable(module.parameters() for module in modules))
    others = _distinct(chain.from_iterable(module.buffers() for module in modules))
    frozen = [weight for weight in weights if not weight.requires_grad]
    resting = sum(tensor.nbytes for tensor in chain(frozen, others))
    trained = nn.ParameterList(
        nn.Parameter(torch.empty_like(weight, device="meta")) for weight in weights if weight.requires_grad
    )
    if not len(trained):
        return WeightBytes(parameters=resting, gradients=0, optimiser_states=0, update=0)
    flat = FlatParameters(trained)
    with FakeTensorMode():
        states, update = states_and_update_bytes(flat, build_optimiser, offloads_states=offloads_states)
    return WeightBytes(
        parameters=flat.values.nbytes + resting,
        gradients=flat.gradients.nbytes,
        optimiser_states=states,
        update=update,
    )


def _distinct(tensors: Iterable[Tensor]) -> list[Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def states_and_update_bytes(
    flat: FlatParameters, build_optimiser: BuildOptimiser, *, offloads_states: bool
) -> tuple[int, int]:
    """The bytes of the optimiser's states on the device, and the temporary bytes of an update.

    Call it inside a FakeTensorMode, because it runs an optimiser step. The fake tensors are on the CPU: the
    bytes are the same on every device, and offloading needs no stream there.
    """
    values, gradients = (torch.empty(len(flat.values), dtype=flat.values.dtype) for _ in range(2))
    rate, update = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.int64)
    optimiser: Optimiser
    if offloads_states:
        optimiser = OffloadedOptimiser(build_optimiser, values=values, segments=flat.segments)
        on_device = optimiser.buffers
    else:
        optimiser = build_optimiser(values=values, segments=flat.segments)
        on_device = list(optimiser.states.values())
    known = [values, gradients, rate, update, *optimiser.states.values(), *on_device]
    with LiveBytes(before=known) as live:
        optimiser.step(values=values, gradients=widened(gradients), rate=rate, update=update)
    return sum(state.nbytes for state in on_device), live.peak_bytes
