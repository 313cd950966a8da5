"""A stand-in for the ResNets of torchvision and timm: their structure, their names, and their epsilon."""

import torch
from torch import Tensor, nn

_STACKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


class Block(nn.Module):
    """A basic block, or a bottleneck with the stride in its second convolution."""

    def __init__(self, width: int, inner: int, *, stride: int, is_bottleneck: bool) -> None:
        super().__init__()
        outer = inner * 4 if is_bottleneck else inner
        sizes = [(width, inner, 1), (inner, inner, 3), (inner, outer, 1)]
        if not is_bottleneck:
            sizes = [(width, inner, 3), (inner, inner, 3)]
        self.last, strided = len(sizes), 2 if is_bottleneck else 1
        for number, (before, after, kernel) in enumerate(sizes, start=1):
            step = stride if number == strided else 1
            convolution = nn.Conv2d(before, after, kernel, stride=step, padding=kernel // 2, bias=False)
            self.add_module(f"conv{number}", convolution)
            self.add_module(f"bn{number}", nn.BatchNorm2d(after))
        self.downsample: nn.Module | None = None
        if stride > 1 or width != outer:
            shortcut = nn.Conv2d(width, outer, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outer))

    def forward(self, inputs: Tensor) -> Tensor:
        branch = inputs
        for number in range(1, self.last + 1):
            branch = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(branch))
            branch = branch if number == self.last else torch.relu(branch)
        return torch.relu(branch + (inputs if self.downsample is None else self.downsample(inputs)))


class PlainResNet(nn.Module):
    """A residual network for photographs."""

    def __init__(self, name: str, *, channels: int = 3, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        is_bottleneck, width = name == "resnet50", 64
        for stack, num_blocks in enumerate(_STACKS[name]):
            inner = 64 * 2**stack
            blocks = []
            for index in range(num_blocks):
                stride = 2 if stack and not index else 1
                blocks.append(Block(width, inner, stride=stride, is_bottleneck=is_bottleneck))
                width = inner * 4 if is_bottleneck else inner
            self.add_module(f"layer{stack + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.maxpool(torch.relu(self.bn1(self.conv1(images))))
        for stack in range(1, 5):
            features = getattr(self, f"layer{stack}")(features)
        logits: Tensor = self.fc(features.mean((2, 3)))
        return logits


def trained_looking(name: str, *, channels: int = 3, num_classes: int = 10) -> PlainResNet:
    """A network whose batch norms have statistics and scales of their own, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = PlainResNet(name, channels=channels, num_classes=num_classes)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.0)
                nn.init.normal_(module.bias, std=0.1)
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 2.0)
    return model.eval()
