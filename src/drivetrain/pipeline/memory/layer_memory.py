"""What each layer keeps for the backward pass, found once for all possible stages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import Node
from torch.utils._pytree import tree_iter

from drivetrain.pipeline.cutting.cut import StageModule
from drivetrain.pipeline.graph.shapes import GraphWalk
from drivetrain.pipeline.memory.stage_memory import autocast_of, fake_twin, flat_parameters, own_tensors
from drivetrain.pipeline.memory.weight_memory import storage_key

__all__ = ["KeptTensor", "LayerMemory", "layer_memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTensor:
    """Memory made by one step and kept for the backward pass, first by the step `saver`; names of steps."""

    producer: str
    saver: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """The bytes of all values of a forward pass in training, those with a gradient, and what is kept."""

    value_bytes: dict[str, int]
    with_gradient: frozenset[str]
    kept: tuple[KeptTensor, ...]


def layer_memory(
    whole: StageModule, images: Tensor, *, compute_dtype: torch.dtype, device: torch.device | None = None
) -> LayerMemory:
    """Runs a model that is one stage on fake tensors; `images` only describe a micro-batch.

    `device` is where the pass would run.
    """
    with fake_twin(whole, {"images": images}, device=device) as (twin, arguments):
        flat_parameters(twin)
        walk = _Walk(twin, ignored=[*own_tensors(twin), *arguments])
        with (
            saved_tensors_hooks(walk.note, lambda tensor: tensor),
            autocast_of(arguments[0].device, compute_dtype),
        ):
            walk.walk(arguments[0])
    return walk.found()


class _Walk(GraphWalk):
    """Notes which step makes each piece of memory, and which is the first that keeps it."""

    def __init__(self, twin: Any, *, ignored: Sequence[Tensor]) -> None:
        super().__init__(twin, graph=twin.graph, garbage_collect_values=False)
        self._ignored = {storage_key(tensor) for tensor in ignored}
        self._producers: dict[int, str] = {}
        self._savers: dict[int, tuple[str, int]] = {}
        self._values: dict[str, Tensor] = {}
        # A storage that is freed may lend its address, the key, to a later one.
        self._alive: list[Tensor] = []
        self._running = ""

    def note(self, tensor: Tensor) -> Tensor:
        self._alive.append(tensor)
        self._savers.setdefault(storage_key(tensor), (self._running, tensor.untyped_storage().nbytes()))
        return tensor

    def run_node(self, n: Node) -> Any:
        self._running = n.name
        result = super().run_node(n)
        if n.op not in ("placeholder", "output", "get_attr"):
            for tensor in tree_iter(result):
                if isinstance(tensor, Tensor):
                    self._alive.append(tensor)
                    self._producers.setdefault(storage_key(tensor), n.name)
        if isinstance(result, Tensor):
            self._values[n.name] = result
        return result

    def found(self) -> LayerMemory:
        return LayerMemory(
            value_bytes={name: value.nbytes for name, value in self._values.items()},
            with_gradient=frozenset(name for name, value in self._values.items() if value.requires_grad),
            kept=tuple(
                KeptTensor(producer=self._producers.get(key, saver), saver=saver, num_bytes=size)
                for key, (saver, size) in self._savers.items()
                if key not in self._ignored
            ),
        )
