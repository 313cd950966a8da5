"""What the values between stages look like in training, found on tensors without contents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call

from drivetrain.passes.forward import Precision
from drivetrain.pipeline.cutting.cut import Cut, StageModule
from drivetrain.pipeline.graph.shapes import undisturbed
from drivetrain.pipeline.memory.live_bytes import LiveBytes, storage_key

__all__ = ["ValueFlow", "find_values"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFlow:
    """Every value that a stage is given or gives, as a tensor without memory; the images among them.

    `kept` are those that the stage that computes them keeps itself for its backward pass. `forward_bytes` is
    the most that the forward pass of each stage has at once, beside what it is given.
    """

    values: dict[str, Tensor]
    kept: frozenset[str]
    forward_bytes: tuple[int, ...]

    @property
    def bytes_of(self) -> dict[str, int]:
        """Bytes of one micro-batch, by name."""
        return {name: value.nbytes for name, value in self.values.items()}

    def inputs_of(self, stage: StageModule) -> dict[str, Tensor]:
        """What a stage is given, in its order."""
        return {name: self.values[name] for name in stage.stage_facts.inputs}


def find_values(cut: Cut, *, images: Sequence[int], compute_dtypes: Sequence[torch.dtype]) -> ValueFlow:
    """The values for micro-batches of a shape; `compute_dtypes` has the type of each stage's products."""
    values = {cut.input: _described(torch.empty(tuple(images), device="meta"), is_trained=False)}
    kept: set[str] = set()
    forward_bytes: list[int] = []
    for stage, dtype in zip(cut.stages, compute_dtypes, strict=True):
        found, own, most = _run(stage, [values[name] for name in stage.stage_facts.inputs], dtype)
        values |= found
        kept |= own
        forward_bytes.append(most)
    return ValueFlow(values=values, kept=frozenset(kept), forward_bytes=tuple(forward_bytes))


def _run(
    stage: StageModule, inputs: Sequence[Tensor], dtype: torch.dtype
) -> tuple[dict[str, Tensor], set[str], int]:
    """One pass in evaluation mode, which leaves no trace in the stage."""
    saved: set[int] = set()
    alive: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        saved.add(storage_key(tensor))
        alive.append(tensor)
        return tensor

    precision = Precision(compute_dtype=dtype, device_type="cpu")
    with FakeTensorMode(), undisturbed(stage):
        numbers = {name: _like(tensor) for name, tensor in _own_tensors(stage)}
        arguments = tuple(map(_like, inputs))
        with (
            LiveBytes(before=[*numbers.values(), *arguments]) as live,
            saved_tensors_hooks(note, lambda tensor: tensor),
            precision.autocast(),
        ):
            outputs = functional_call(stage, numbers, arguments)
    named = dict(zip(stage.stage_facts.outputs, outputs, strict=True))
    kept = {name for name, value in named.items() if storage_key(value) in saved}
    described = {name: _described(value, is_trained=True) for name, value in named.items()}
    return described, kept, live.peak_bytes


def _own_tensors(stage: StageModule) -> Iterator[tuple[str, Tensor]]:
    return chain(stage.named_parameters(), stage.named_buffers())


def _like(tensor: Tensor) -> Tensor:
    made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    return made.requires_grad_(tensor.requires_grad)


def _described(value: Tensor, *, is_trained: bool) -> Tensor:
    """As it travels: in one piece, images channels last."""
    layout = torch.channels_last if value.dim() == 4 else torch.contiguous_format
    made = torch.empty(tuple(value.shape), dtype=value.dtype, device="meta", memory_format=layout)
    return made.requires_grad_(is_trained and value.is_floating_point())
