"""Deterministic algorithms of torch (--deterministic), and the operations that have none.

torch only warns of an operation without a deterministic algorithm. Its warning names a kernel;
`noting_operations` finds the layers of a model that call it.
"""

import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree, deterministic

from drivetrain.devices.blas_workspace import fixed_workspace

__all__ = ["Operation", "deterministic_algorithms", "noting_operations"]

# The attribute is a property of the module, which type checkers do not see.
_MEMORY: Any = deterministic
_ALERT_WORDS = "does not have a deterministic implementation"
_ALERT = re.compile(rf"(\w+) {_ALERT_WORDS}")
# Words that distinguish the kernels of one operation, as in upsample_bicubic2d_backward_out_cuda.
_OF_KERNELS = frozenset({"forward", "backward", "out", "cuda", "cpu", "template", "kernel", "impl", "vec"})
_NODE_ENDS = re.compile(r"Backward\d*$")


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Turns on deterministic algorithms, in compiled code too, and restores torch's settings afterwards."""
    is_on = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills, is_deterministic = _MEMORY.fill_uninitialized_memory, torch.backends.cudnn.deterministic
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling costs time in every update, and nothing here reads memory that was not written.
    _MEMORY.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = True
    try:
        with fixed_workspace(is_on=True), warnings.catch_warnings():
            # `noting_operations` says it once, with the layer; torch would repeat it, with a line of its own.
            warnings.filterwarnings("ignore", message=f".*{_ALERT_WORDS}")
            yield
    finally:
        torch.use_deterministic_algorithms(is_on, warn_only=only_warns)
        _MEMORY.fill_uninitialized_memory = fills
        torch.backends.cudnn.deterministic = is_deterministic


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation without a deterministic algorithm, and the layers that call it, if they are known."""

    name: str
    layers: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The warning of a run."""
        where = f", which {_listed(self.layers)} calls," if self.layers else ""
        return (
            f"--deterministic: torch has no deterministic algorithm for {self.name}{where} on this device, "
            "so two runs may differ in their last bits; another layer or another device avoids it."
        )


@contextmanager
def noting_operations(model: nn.Module) -> Iterator[list[Operation]]:
    """Collects the operations without deterministic algorithm that passes inside the block use.

    The list is filled when the block ends. Call it under `deterministic_algorithms`, for uncompiled passes.
    """
    found: list[Operation] = []
    notes = _Notes()
    with warnings.catch_warnings(record=True) as caught, ExitStack() as hooks:
        warnings.simplefilter("always")
        notes.caught = caught
        for name, module in model.named_modules():
            hooks.enter_context(_noted(module, name or "the model", notes))
        yield found
        notes.see_warnings(None)
    found += [Operation(name, notes.layers_of(name)) for name in notes.layers_by_operation]
    for other in notes.others:
        # Unlike showwarning, this respects the filters of the caller.
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)


@dataclass(slots=True)
class _Notes:
    """What the hooks of a model see: warnings, the layers that run, and the steps of the backward pass."""

    caught: list[warnings.WarningMessage] = field(default_factory=list)
    others: list[warnings.WarningMessage] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    layers_by_operation: dict[str, list[str]] = field(default_factory=dict)
    layers_by_node: dict[str, list[str]] = field(default_factory=dict)
    # The nodes themselves, as the identity of a freed one may be given to another.
    _nodes: set[Any] = field(default_factory=set)

    def see_warnings(self, layer: str | None) -> None:
        """Attributes new warnings to a layer; those of a backward pass come when no layer runs."""
        for warning in self.caught:
            alert = _ALERT.search(str(warning.message))
            if alert is None:
                self.others.append(warning)
                continue
            layers = self.layers_by_operation.setdefault(alert[1], [])
            if layer is not None and layer not in layers:
                layers.append(layer)
        self.caught.clear()

    def see_output(self, layer: str, output: object) -> None:
        """Attributes the backward steps of a layer's output that no layer inside it has claimed."""
        tensors = [value for value in _pytree.tree_leaves(output) if isinstance(value, Tensor)]
        left = [tensor.grad_fn for tensor in tensors]
        while left:
            node = left.pop()
            if node is None or node in self._nodes:
                continue
            self._nodes.add(node)
            layers = self.layers_by_node.setdefault(_plain(_NODE_ENDS.sub("", node.name())), [])
            if layer not in layers:
                layers.append(layer)
            left += [before for before, _ in node.next_functions]

    def layers_of(self, operation: str) -> tuple[str, ...]:
        """The layers that call an operation, in their forward or in their backward pass."""
        return tuple(self.layers_by_operation[operation] or self.layers_by_node.get(_plain(operation), ()))


@contextmanager
def _noted(module: nn.Module, name: str, notes: _Notes) -> Iterator[None]:
    def begin(_module: nn.Module, _inputs: tuple[Any, ...]) -> None:
        notes.see_warnings(notes.running[-1] if notes.running else None)
        notes.running.append(name)

    def end(_module: nn.Module, _inputs: tuple[Any, ...], output: object) -> None:
        notes.see_warnings(name)
        notes.see_output(name, output)
        notes.running.pop()

    with module.register_forward_pre_hook(begin), module.register_forward_hook(end):
        yield


def _plain(name: str) -> str:
    """The name that a kernel and its step in the backward pass have in common."""
    return "".join(word for word in name.lower().split("_") if word not in _OF_KERNELS)


def _listed(layers: tuple[str, ...]) -> str:
    more = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
    return f"layer {layers[0]}{more}"
