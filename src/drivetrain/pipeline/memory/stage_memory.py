"""Predicts the memory of a stage by running its passes on fake tensors, which have shapes but no data.

Tensors are counted as torch allocates them. Not counted are workspaces of kernels (such as cuDNN's), the
rounding of the allocator, and the loss unless it is part of the given stage.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks

from drivetrain.layers.draws.dropout import CounterDropout
from drivetrain.layers.reporting_batch_norm import ReportingBatchNorm
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.optimiser import BuildOptimiser
from drivetrain.passes.forward import Precision
from drivetrain.pipeline.memory.weight_memory import LiveBytes, states_and_update_bytes, storage_key
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.schema import Recipe

__all__ = [
    "ActivationBytes",
    "StageMemory",
    "autocast_of",
    "fake_twin",
    "flat_parameters",
    "own_tensors",
    "pretended_device",
    "stage_activation_bytes",
    "stage_memory",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationBytes:
    """The memory of one micro-batch in a stage, from its forward pass to the end of its backward pass.

    `input_bytes` are the inputs of the stage, `saved_bytes` everything else it keeps for the backward pass;
    both are held between the two passes. `output_bytes` are the outputs that the stage does not keep itself,
    `largest_bytes` is the largest single tensor. `working_bytes` is the temporary memory of a pass beyond
    what is held: outputs, intermediate results and gradients.
    """

    input_bytes: int
    saved_bytes: int
    output_bytes: int
    largest_bytes: int
    working_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """The bytes of a stage on its device, and their peak.

    `parameters` includes frozen ones and buffers such as running statistics. `working` is the
    temporary memory of a backward pass. The optimiser update runs while no activation is held, so its own
    temporary memory counts only if it is larger than the activations and `working` together.
    """

    parameters: int
    gradients: int
    optimiser_states: int
    activations: int
    working: int
    peak: int


def stage_activation_bytes(
    stage: nn.Module,
    inputs: Mapping[str, Tensor],
    *,
    compute_dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    compiled: bool = False,
) -> ActivationBytes:
    """The memory of a micro-batch in training; the stage, its statistics and random state do not change.

    `inputs` only describe the arguments of the stage, in order: shape, strides, type, and whether a gradient
    is needed. Both `inputs` and the stage may be on the meta device. `device` is where the passes would run.
    """
    with fake_twin(stage, inputs, device=device) as (twin, arguments):
        flat_parameters(twin)
        return _run_passes(twin, arguments, compute_dtype=compute_dtype, compiled=compiled)


def stage_memory(
    stage: nn.Module,
    inputs: Mapping[str, Tensor],
    *,
    live_micro_batches: int,
    build_optimiser: BuildOptimiser,
    compute_dtype: torch.dtype = torch.float32,
    recomputes: bool = False,
    offloads_states: bool = False,
    device: torch.device | None = None,
    compiled: bool = False,
) -> StageMemory:
    """The memory of a stage that keeps up to `live_micro_batches` between their forward and backward passes.

    With recomputation each of them holds only its inputs; the rest is held for one micro-batch at a time.
    """
    each = stage_activation_bytes(
        stage, inputs, compute_dtype=compute_dtype, device=device, compiled=compiled
    )
    with fake_twin(stage, inputs) as (twin, _):
        flat = flat_parameters(twin)
        states, update = (0, 0)
        if flat is not None:
            states, update = states_and_update_bytes(flat, build_optimiser, offloads_states=offloads_states)
        parameters = _distinct_bytes(own_tensors(twin))
    gradients = flat.gradients.nbytes if flat else 0
    passes_computed = 1 if recomputes else live_micro_batches
    activations = live_micro_batches * each.input_bytes + passes_computed * each.saved_bytes
    return StageMemory(
        parameters=parameters,
        gradients=gradients,
        optimiser_states=states,
        activations=activations,
        working=each.working_bytes,
        peak=parameters + gradients + states + max(activations + each.working_bytes, update),
    )


def _run_passes(
    twin: nn.Module, arguments: list[Tensor], *, compute_dtype: torch.dtype, compiled: bool
) -> ActivationBytes:
    """Runs a forward and a backward pass and counts what they hold; gradients must be allocated already."""
    saved: set[int] = set()
    positions: set[int] = set()

    def note(tensor: Tensor) -> Tensor:
        saved.add(storage_key(tensor))
        if tensor.dtype == torch.int64:
            positions.add(storage_key(tensor))
        return tensor

    with LiveBytes(before=[*own_tensors(twin), *_gradients(twin), *arguments]) as live:
        with (
            saved_tensors_hooks(note, _unchanged),
            autocast_of(arguments[0].device, compute_dtype),
        ):
            outputs = _as_tuple(twin(*arguments))
        saved_bytes = live.bytes_of(saved)
        # Compiled code keeps the positions of max pooling as offsets of 8 bits instead of 64.
        narrowed_bytes = live.bytes_of(positions) * 7 // 8 if compiled else 0
        output_bytes = live.bytes_of({storage_key(output) for output in outputs} - saved)
        # The outputs are sent away; until their gradients arrive the stage holds only the autograd graph.
        roots = [
            (get_gradient_edge(output), _maker_like(output)) for output in outputs if output.requires_grad
        ]
        del outputs
        if roots:
            ends = [make_gradient() for _, make_gradient in roots]
            torch.autograd.backward([root for root, _ in roots], ends)
    return ActivationBytes(
        input_bytes=_distinct_bytes(arguments),
        saved_bytes=saved_bytes - narrowed_bytes,
        output_bytes=output_bytes,
        largest_bytes=live.largest_bytes,
        working_bytes=live.peak_bytes - saved_bytes,
    )


@contextmanager
def fake_twin(
    stage: nn.Module, inputs: Mapping[str, Tensor], *, device: torch.device | None = None
) -> Iterator[tuple[nn.Module, list[Tensor]]]:
    """A copy of the stage in training mode and arguments for it, all as fake tensors without memory.

    They pretend to be on `device`, or where the stage is.
    """
    mode = FakeTensorMode()
    device = _device_of(stage) if device is None else device
    with mode:
        memo: dict[int, Any] = {id(tensor): _like(tensor, device) for tensor in own_tensors(stage)}
    memo |= {id(module.group): _silent(module.group) for module in _batch_norms(stage)}
    with FakeCopyMode(mode):
        twin = copy.deepcopy(stage, memo).train()
    with mode:
        arguments = [_like(spec, device) for spec in inputs.values()]
        for module in twin.modules():
            if isinstance(module, CounterDropout):
                module.context.begin_forward(torch.arange(len(arguments[0]), device=device))
                module.context.update = torch.zeros((), dtype=torch.int64, device=device)
        yield twin, arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class _SilentGroup(ReplicaGroup):
    """A replica group without communication: fake tensors have no values, and no other rank takes part."""

    def begin_sum(self, values: Tensor) -> Callable[[], object]:  # noqa: ARG002
        return _nothing


def _silent(group: ReplicaGroup) -> ReplicaGroup:
    return group if group.size == 1 else _SilentGroup(rank=group.rank, size=group.size)


def _batch_norms(stage: nn.Module) -> Iterator[ReportingBatchNorm]:
    return (module for module in stage.modules() if isinstance(module, ReportingBatchNorm))


def flat_parameters(twin: nn.Module) -> FlatParameters | None:
    """The weights in one flat vector with its gradients, as in training; None if no weight is trained."""
    is_trained = any(parameter.requires_grad for parameter in twin.parameters())
    return FlatParameters(twin) if is_trained else None


def _device_of(stage: nn.Module) -> torch.device:
    """The device of the stage; a stage on the meta device counts as one on the CPU."""
    devices = {tensor.device for tensor in own_tensors(stage)} - {torch.device("meta")}
    return devices.pop() if devices else torch.device("cpu")


def _maker_like(output: Tensor) -> Callable[[], Tensor]:
    """A function that makes a tensor like `output`, without keeping `output` alive."""
    size, stride = output.size(), output.stride()
    return partial(torch.empty_strided, size, stride, dtype=output.dtype, device=output.device)


def _like(spec: Tensor, device: torch.device) -> Tensor:
    tensor = torch.empty_strided(spec.size(), spec.stride(), dtype=spec.dtype, device=device)
    if isinstance(spec, nn.Parameter):
        return nn.Parameter(tensor, requires_grad=spec.requires_grad)
    return tensor.requires_grad_(spec.requires_grad)


def pretended_device(recipe: Recipe) -> torch.device:
    """Where the passes of a recipe run on this machine: autocast keeps other types on CUDA than on a CPU.

    A CPU if this machine cannot compute there: torch then has no kernels to ask for shapes.
    """
    on_cuda = recipe.device.partition(":")[0] in ("auto", "cuda") and torch.cuda.is_available()
    return torch.device("cuda", 0) if on_cuda else torch.device("cpu")


def autocast_of(device: torch.device, compute_dtype: torch.dtype) -> AbstractContextManager[object]:
    """The precision of a forward pass."""
    return Precision(compute_dtype=compute_dtype, device_type=device.type).autocast()


def own_tensors(stage: nn.Module) -> list[Tensor]:
    """The parameters and buffers of a stage."""
    return [*stage.parameters(), *stage.buffers()]


def _gradients(stage: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in stage.parameters() if parameter.grad is not None]


def _distinct_bytes(tensors: Iterable[Tensor]) -> int:
    """The bytes of tensors; memory that several of them share counts once."""
    storages = {storage_key(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def _as_tuple(outputs: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def _nothing() -> None:
    return None
