"""Models whose code asks for the mode or for sizes, each with the layers that begin its later stages."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["BY_MODE", "BY_SIZE", "Net", "Wrapped"]


class Net(nn.Module):
    """Layers for images of 3 channels; what happens between them is the code under test."""

    def __init__(self, between: "Callable[[Net, Tensor], Tensor]") -> None:
        super().__init__()
        self.between = between
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.extra = nn.Conv2d(4, 4, 1)
        self.extra_norm = nn.BatchNorm2d(4)
        self.scale = nn.Parameter(torch.full((4, 1, 1), 1.5))
        self.line = nn.Linear(4, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = self.between(self, torch.tanh(self.norm(self.first(images))))
        logits: Tensor = self.line(features.mean((2, 3)))
        return logits


class Wrapped(nn.Module):
    """A model whose only module asks for the mode or for sizes."""

    def __init__(self, between: Callable[[Net, Tensor], Tensor]) -> None:
        super().__init__()
        self.net = Net(between)
        self.last = nn.Linear(10, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.last(self.net(images))
        return logits


def dropping(self: Net, features: Tensor) -> Tensor:
    features = self.second(functional.dropout(features, p=0.0, training=self.training))
    return functional.dropout(features, p=0.0, training=self.training)


def only_in_training(self: Net, features: Tensor) -> Tensor:
    if self.training:
        features = features + 0.1 * self.extra_norm(self.extra(features))
    return torch.tanh(self.second(features))


def only_in_evaluation(self: Net, features: Tensor) -> Tensor:
    if not self.training:
        features = self.extra_norm(self.extra(features)) * self.scale
    return torch.tanh(self.second(features))


def skipping(self: Net, features: Tensor) -> Tensor:
    return torch.tanh(self.second(features)) if self.training else features


def fused(self: Net, features: Tensor) -> Tensor:
    if self.training:
        return self.second(features) + self.extra(features)  # type: ignore[no-any-return]
    middle = functional.pad(self.extra.weight, (1, 1, 1, 1))
    biases = self.second.bias + self.extra.bias  # type: ignore[operator]
    return functional.conv2d(features, self.second.weight + middle, biases, padding=1)


def by_constant(self: Net, features: Tensor) -> Tensor:
    return self.second(features) * torch.tensor([2.0 if self.training else 3.0])  # type: ignore[no-any-return]


def wired(self: Net, features: Tensor) -> Tensor:
    one, other = self.extra(features), self.second(features)
    return one - other if self.training else other - one  # type: ignore[no-any-return]


BY_MODE: dict[str, tuple[Callable[[Net, Tensor], Tensor], tuple[str, ...]]] = {
    "dropping": (dropping, ("second", "mean")),
    "only_in_training": (only_in_training, ("extra_norm", "second")),
    "only_in_evaluation": (only_in_evaluation, ("second", "mean")),
    "skipping": (skipping, ("second", "mean")),
    "fused": (fused, ("second", "mean")),
    "by_constant": (by_constant, ("second", "mean")),
    "wired": (wired, ("extra", "line")),
}


def interpolating(self: Net, features: Tensor) -> Tensor:
    _, _, height, width = features.shape
    if height != 8 or width != 8:
        features = functional.interpolate(features, size=(height * 2, 8))
    return self.second(features)  # type: ignore[no-any-return]


def asserting(self: Net, features: Tensor) -> Tensor:
    assert features.shape[2] == 4, "images of 4 x 4 pixels"
    return self.second(features)  # type: ignore[no-any-return]


def looping(self: Net, features: Tensor) -> Tensor:
    channels = [features[:, index] * index for index in range(features.shape[1])]
    return self.second(torch.stack(channels, dim=1))  # type: ignore[no-any-return]


def iterating(self: Net, features: Tensor) -> Tensor:
    parts = [torch.tanh(part) for part in features.chunk(2, dim=1)]
    return self.second(torch.cat(parts * (len(parts) // 2), dim=1))  # type: ignore[no-any-return]


def converting(self: Net, features: Tensor) -> Tensor:
    half = int(features.shape[1] * 0.5)
    features = torch.cat([features[:, half:], features[:, :half] / math.sqrt(float(features.size(-1)))], 1)
    return self.second(features)  # type: ignore[no-any-return]


def viewing(self: Net, features: Tensor) -> Tensor:
    batch, channels, height, _ = features.shape
    rows = self.second(features).contiguous().view(batch, channels, int(height * 2.0), -1)
    return rows.flip(2)  # type: ignore[no-any-return]


def comparing_shapes(self: Net, features: Tensor) -> Tensor:
    after = self.second(features)
    return after + features if after.shape == features.shape else after  # type: ignore[no-any-return]


def asking_for_types(self: Net, features: Tensor) -> Tensor:
    if isinstance(features, (list, tuple)) or not torch.is_tensor(features):
        features = features[0]
    channels = features.shape[1]
    return self.second(features) * (2 if isinstance(channels, int) else 1)  # type: ignore[no-any-return]


BY_SIZE: dict[str, tuple[Callable[[Net, Tensor], Tensor], tuple[str, ...]]] = {
    function.__name__: (function, ("second", "mean"))
    for function in (
        interpolating,
        asserting,
        looping,
        iterating,
        converting,
        viewing,
        comparing_shapes,
        asking_for_types,
    )
}
