"""Models with a layer that changes what it keeps, on which its output depends; one kind of state each."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils import spectral_norm as old_spectral_norm

__all__ = ["LAYERS", "WithState"]


class _CountedInPlace(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return torch.tanh(inputs) * self.calls


class _CountedThroughData(_CountedInPlace):
    def forward(self, inputs: Tensor) -> Tensor:
        self.calls.data.add_(1)
        return torch.tanh(inputs) * self.calls


class _CountedAnew(_CountedInPlace):
    def forward(self, inputs: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return torch.tanh(inputs) * (1 + 0.1 * self.calls)


class _PlainTensor(nn.Module):
    """Neither a buffer nor a parameter; its code looks as if it only computed."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Identity()
        self.calls = torch.zeros(())

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls.add_(1)
        return torch.tanh(self.scale(inputs)) * self.calls


class _PythonNumber(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return torch.tanh(inputs) * (1 + 0.1 * self.calls)


class _InCollection(nn.Module):
    """A dictionary, in which a tensor changes in place, and a list that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.state = {"mean": torch.zeros(())}
        self.seen: list[int] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.state["mean"].lerp_(inputs.detach().mean().to(self.state["mean"]), 0.3)
        self.seen.append(len(self.seen))
        return torch.tanh(inputs) * (1 + self.state["mean"] + 0.1 * len(self.seen))


class _View(nn.Module):
    """Two buffers in one piece of memory; one of them is written, the other one read."""

    table: Tensor
    first: Tensor

    def __init__(self) -> None:
        super().__init__()
        # In the type of the tests: a conversion would give each its own memory.
        self.register_buffer("table", torch.zeros(4, dtype=torch.float64))
        self.register_buffer("first", self.table[:1], persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        self.table += 0.5
        return torch.tanh(inputs) * (1 + self.first)


class _Expanded(nn.Module):
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1).expand(4))

    def forward(self, inputs: Tensor) -> Tensor:
        self.scale = self.scale * 1.5
        return torch.tanh(inputs) * self.scale[0]


class _MadeLate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        mean = inputs.detach().mean()
        self.mean = mean if self.mean is None else 0.5 * (self.mean + mean)
        return torch.tanh(inputs) * (1 + self.mean)


class _ShrinkingWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4, 1, 1), 1.5))

    def forward(self, inputs: Tensor) -> Tensor:
        self.weight.data.mul_(0.9)
        return torch.tanh(inputs * self.weight)


LAYERS = {
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Conv2d(4, 4, 1)),
    "old spectral norm": lambda: old_spectral_norm(nn.Conv2d(4, 4, 1)),
    "buffer in place": _CountedInPlace,
    "buffer through data": _CountedThroughData,
    "buffer anew": _CountedAnew,
    "plain tensor": _PlainTensor,
    "Python number": _PythonNumber,
    "collection": _InCollection,
    "view": _View,
    "expanded": _Expanded,
    "made late": _MadeLate,
    "parameter": _ShrinkingWeight,
}


class WithState(nn.Module):
    """A small network around one of the layers."""

    def __init__(self, layer: str, *, channels: int = 3, size: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(channels, 4, 3)
        self.odd = LAYERS[layer]()
        self.second = nn.Conv2d(4, 4, size)
        self.line = nn.Linear(4, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = torch.tanh(self.second(self.odd(self.first(images))))
        logits: Tensor = self.line(features.mean((2, 3)))
        return logits
