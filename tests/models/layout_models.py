"""Models whose code needs torch's default memory format somewhere; ranks import them by name."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "NEEDS_DEFAULT",
    "PlainNet",
    "RowsFirst",
    "StandardisedNet",
    "ViewInBackward",
    "ViewInEvaluation",
    "ViewNet",
]


class PlainNet(nn.Module):
    """A small network that runs in every memory format; its subclasses change one place of it."""

    def __init__(self, *, channels: int = 1, image_size: int = 8, num_classes: int = 3) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout2d(0.25)
        self.second = nn.Conv2d(6, 16, 3)
        self.head = nn.Linear(16 * (image_size - 4) ** 2, num_classes)

    def features(self, images: Tensor) -> Tensor:
        return torch.tanh(self.second(self.drop(torch.tanh(self.norm(self.first(images))))))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images).flatten(1))
        return logits


class ViewNet(PlainNet):
    """LeNet's way to the linear layer."""

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images).view(-1, 16 * 4 * 4))
        return logits


class _StandardisedConv(nn.Conv2d):
    def forward(self, images: Tensor) -> Tensor:
        rows = self.weight.view(self.weight.size(0), -1)
        rows = (rows - rows.mean(1, keepdim=True)) / (rows.std(1, keepdim=True) + 1e-5)
        return F.conv2d(images, rows.view_as(self.weight), self.bias)


class StandardisedNet(PlainNet):
    """Weight standardisation, as published."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.second = _StandardisedConv(6, 16, 3)


class ViewInEvaluation(PlainNet):
    """Flattens with `view` in evaluation only."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.flat = _FlatByMode()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.flat(self.features(images)))
        return logits


class _FlatByMode(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.flatten(1) if self.training else features.view(features.size(0), -1)


class RowsFirst(PlainNet):
    """Puts channels last in the shape too, as transformers do, and takes that for contiguous."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.gate = nn.Tanh()

    def forward(self, images: Tensor) -> Tensor:
        rows = self.gate(self.features(images).permute(0, 2, 3, 1).contiguous())
        logits: Tensor = self.head(rows.view(-1, 16 * 4 * 4))
        return logits


class ViewInBackward(PlainNet):
    """Its backward pass takes the gradient for contiguous."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.scale = _Scale()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.scale(self.features(images)).sum(3).repeat(1, 1, 4).flatten(1))
        return logits


class _Scale(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        scaled: Tensor = _ScaleByRows.apply(torch.tanh(features))  # type: ignore[no-untyped-call]
        return torch.tanh(scaled)


class _ScaleByRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        ctx.save_for_backward(features)
        return features * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (features,) = ctx.saved_tensors
        gradient: Tensor = features * 0 + gradients[0] * 2
        return gradient.view(len(features), -1).view_as(features)


NEEDS_DEFAULT = (ViewNet, StandardisedNet, ViewInEvaluation, ViewInBackward)
