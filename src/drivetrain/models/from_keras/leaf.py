"""What a Keras layer becomes: a torch module, the form of its values, and where its weights come from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Form", "KerasCall", "Leaf", "ToLeaf", "WeightLink", "in_sequence", "take_weights"]


class Form(Enum):
    """How a value lies in the torch graph; values of one or two dimensions have both forms."""

    AS_IN_KERAS = "as in Keras"
    CHANNELS_SECOND = "channels second"
    """The channels, which Keras has last, are the second dimension, as torch's layers want them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLink:
    """One weight in both worlds: torch's is Keras's, seen in another shape with its axes in another order."""

    name: str
    """The name of torch's weight."""
    variable: Any
    axes: tuple[int, ...] | None = None
    """Of torch's weight, which axis of Keras's each one is; None for the same order."""
    viewed: tuple[int, ...] | None = None
    """The shape in which Keras's weight is read before its axes are moved; None for its own."""

    def to_torch(self) -> Tensor:
        """A copy of the Keras weight as the torch module needs it."""
        value: Tensor = self.variable.value.detach()
        value = value if self.viewed is None else value.reshape(self.viewed)
        value = value if self.axes is None else value.permute(self.axes)
        return value.to("cpu", copy=True).contiguous()

    def to_keras(self, weight: Tensor) -> Tensor:
        """torch's weight in the shape of the Keras variable."""
        moved = weight if self.axes is None else weight.permute(_inverse(self.axes))
        return moved.reshape(tuple(self.variable.shape))

    def under(self, prefix: str) -> "WeightLink":
        """The same link for a module that has become part of another."""
        return WeightLink(
            name=f"{prefix}.{self.name}", variable=self.variable, axes=self.axes, viewed=self.viewed
        )


def _inverse(axes: Sequence[int]) -> list[int]:
    return [axes.index(axis) for axis in range(len(axes))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A torch module that computes what a Keras layer does."""

    module: nn.Module
    form: Form | None = Form.AS_IN_KERAS
    """The form of its inputs; None if any will do, as long as all inputs have the same."""
    gives: Form | None = None
    """The form of its output; None for that of the inputs."""
    links: tuple[WeightLink, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasCall:
    """A call of a Keras layer in a graph."""

    layer: Any
    shapes: tuple[tuple[int | None, ...], ...]
    """The shapes of its inputs as Keras knows them, with the samples."""
    arguments: Any = None
    """The arguments of the call as Keras's node has them."""
    is_repeated: bool = False
    """Whether the layer is called more than once, perhaps on inputs of other sizes."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of the first input."""
        return self.shapes[0]

    @property
    def is_plain(self) -> bool:
        """Whether the layer is called on tensors alone, all given by position, with nothing but its mode."""
        kwargs: Mapping[str, Any] = self.arguments.kwargs
        settings = {key for key, value in kwargs.items() if value is not None}
        return len(self.arguments.args) == 1 and settings <= {"training"}


ToLeaf = Callable[[KerasCall], Leaf | None]
"""Makes the leaf of a layer; None if the settings of this layer have no counterpart in torch."""


def in_sequence(
    parts: Mapping[str, tuple[nn.Module | None, Sequence[WeightLink]]],
) -> tuple[nn.Module, tuple[WeightLink, ...]]:
    """Modules that run one after the other as one, and the links of all; a single one stays itself."""
    present = {name: (module, links) for name, (module, links) in parts.items() if module is not None}
    if len(present) == 1:
        ((module, links),) = present.values()
        return module, tuple(links)
    whole = nn.Sequential()
    for name, (module, _) in present.items():
        whole.add_module(name, module)
    return whole, tuple(link.under(name) for name, (_, links) in present.items() for link in links)


@torch.no_grad()
def take_weights(module: nn.Module, links: Sequence[WeightLink]) -> None:
    """Puts copies of the Keras weights into a torch module, in place of its own."""
    for link in links:
        path, _, key = link.name.rpartition(".")
        owner = module.get_submodule(path)
        value = link.to_torch()
        if key in owner._parameters:
            owner._parameters[key] = nn.Parameter(value, requires_grad=bool(link.variable.trainable))
        else:
            owner._buffers[key] = value
