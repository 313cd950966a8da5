"""A Keras model as a torch module: its layers as submodules, and the steps in which they run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["LoweredKeras", "Step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of a layer: on which values, and as which values its outputs are kept."""

    layer: str
    inputs: tuple[int, ...]
    moves: tuple[int, ...]
    """For each input: 1 moves its channels to the end, -1 from there to the second place, 0 leaves it."""
    outputs: tuple[int, ...]
    done_with: tuple[int, ...] = ()
    """The values that no later step reads."""


class LoweredKeras(nn.Module):
    """Runs the steps of a Keras model on images (samples, channels, height, width); value 0 is the images."""

    def __init__(
        self,
        layers: Mapping[str, nn.Module],
        *,
        steps: Sequence[Step],
        result: int,
        sample_shape: tuple[int, ...],
        names_in_keras: Mapping[str, str],
    ) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.steps = tuple(steps)
        self.result = result
        self.sample_shape = sample_shape
        self.layer_aliases = dict(names_in_keras)
        """The names here of the layers that have another one in Keras, by that."""

    def forward(self, images: Tensor) -> Tensor:
        values: dict[int, Any] = {0: images}
        for step in self.steps:
            inputs = [_moved(values[i], move) for i, move in zip(step.inputs, step.moves, strict=True)]
            made = self._modules[step.layer](*inputs)  # type: ignore[misc]
            if len(step.outputs) == 1:
                values[step.outputs[0]] = made
            else:
                values.update({output: made[i] for i, output in enumerate(step.outputs)})
            for index in step.done_with:
                del values[index]
        result: Tensor = values[self.result]
        return result


def _moved(value: Tensor, move: int) -> Tensor:
    if move == 0:
        return value
    return torch.movedim(value, 1, -1) if move == 1 else torch.movedim(value, -1, 1)
