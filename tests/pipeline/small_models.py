"""Models of a few numbers that do what users' models do."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.pipeline.cutting.cut import Cut
from drivetrain.pipeline.graph.trace import TracedModel


class _Triple(torch.autograd.Function):
    """Doubles; its backward pass triples, so that nobody takes one for the other."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        return inputs * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 3


# Bound before any tracer could patch the class, as users do.
triple = _Triple.apply


class CustomBackward(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        doubled: Tensor = triple(inputs)  # type: ignore[no-untyped-call]
        return doubled


class BranchOnShape(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.conv(inputs)
        return outputs[:, :, :-1] if outputs.shape[2] % 2 else outputs


class NoisyInTraining(nn.Module):
    """Works otherwise in training, without a draw."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.conv(inputs)
        return outputs * 1.5 if self.training else outputs


class Block(nn.Module):
    """A residual block as torchvision writes it: changes in place wherever one may."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(4)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.relu(self.bn1(self.conv1(inputs)))
        outputs = self.bn2(self.conv2(outputs))
        outputs += inputs
        return self.relu(outputs)  # type: ignore[no-any-return]


class Everything(nn.Module):
    """A skip that two later parts read, shape reads, functions, and modules that cannot be looked into."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.block = Block()
        self.branch = BranchOnShape()
        self.custom = CustomBackward()
        self.noisy = NoisyInTraining()
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.register_buffer("offset", torch.tensor(0.1))
        self.unused = nn.Linear(2, 2)
        self.classifier = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        batch, _, height, width = images.shape
        skip = functional.relu(self.stem(images), inplace=True)
        features = self.branch(self.block(skip))
        features = functional.interpolate(self.custom(features), size=(height, width))
        features = features + skip * self.scale
        features = self.noisy(features).relu_() + self.offset
        joined = torch.cat([features, skip], dim=1)
        first, second = joined.chunk(2, dim=1)
        joined = torch.cat([second, first.sigmoid()], dim=1)
        logits: Tensor = self.classifier(joined.mean((2, 3)).view(batch, -1))
        return logits


class LateCrop(nn.Module):
    """A U-shape that crops its skip where it is read, not where it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, 2, 3)
        self.middle = nn.Conv2d(2, 2, 3)
        self.up = nn.Conv2d(4, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        skip = self.down(images)
        features = self.middle(skip)
        return self.up(torch.cat([features, skip[:, :, 1:-1, 1:-1]], dim=1))  # type: ignore[no-any-return]


def train_stages(cut: Cut, images: Tensor) -> Tensor:
    """Forward and backward over the stages, gradients along the edges in reverse; returns the output."""
    held: list[tuple[list[Tensor], tuple[Tensor, ...]]] = []
    values = {cut.input: images}
    for stage in cut.stages:
        inputs = [
            values[name].detach().requires_grad_(name != cut.input) for name in stage.stage_facts.inputs
        ]
        outputs = stage(*inputs)
        values.update(zip(stage.stage_facts.outputs, outputs, strict=True))
        held.append((inputs, outputs))
    gradients = {cut.output: [torch.ones_like(values[cut.output])]}
    for stage, (inputs, outputs) in zip(reversed(cut.stages), reversed(held), strict=True):
        arrived = [sum(gradients[name][1:], gradients[name][0]) for name in stage.stage_facts.outputs]
        torch.autograd.backward(outputs, arrived)
        for name, leaf in zip(stage.stage_facts.inputs, inputs, strict=True):
            if leaf.requires_grad:
                gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
                gradients.setdefault(name, []).append(gradient)
    return values[cut.output]


def even_stages(traced: TracedModel, stages: int) -> list[int]:
    """As many layers in each stage, as far as possible."""
    count = len(traced.layers)
    return [place * stages // count for place in range(count)]
