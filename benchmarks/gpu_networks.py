"""Networks, losses and data as one would write them by hand, for the loops that drivetrain is measured by."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from resnet50_step import build_network as build_resnet50
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Work", "make_work"]

MARGIN = 92


@dataclass(frozen=True, kw_only=True)
class Work:
    """A training by hand: a network, a loss, an optimiser's maker, and one batch that lies on the device."""

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    optimiser: Callable[[], torch.optim.Optimizer]
    images: Tensor
    labels: Tensor


class UNet(nn.Module):
    """Ronneberger's, without padding: 572 pixels in, 388 out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(5)]
        self.down = nn.ModuleList(_double(a, b) for a, b in zip([1, *widths], widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.merge = nn.ModuleList(_double(a, b) for a, b in pairs)
        self.dropout = nn.Dropout(0.5)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        features, skips = images, []
        for level, block in enumerate(self.down):
            features = block(features)
            if level < 4:
                skips.append(features)
                features = F.max_pool2d(features, 2)
        features = self.dropout(features)
        for up, merge in zip(self.up, self.merge, strict=True):
            grown = F.relu(up(features))
            skip = skips.pop()
            border = (skip.shape[-1] - grown.shape[-1]) // 2
            skip = skip[..., border : border + grown.shape[-2], border : border + grown.shape[-1]]
            features = merge(torch.cat([grown, skip], 1))
        logits: Tensor = self.last(features)
        return logits


def _double(width: int, new_width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, new_width, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(new_width, new_width, 3),
        nn.ReLU(inplace=True),
    )


def _mnist() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(1600, 10),
    )


def _segmentation_loss(logits: Tensor, classes: Tensor) -> Tensor:
    logits = logits.float()
    shares = logits.softmax(1).flatten(2)
    truth = F.one_hot(classes, 2).movedim(3, 1).flatten(2).float()
    overlap = 2 * (shares * truth).sum(2) + 1e-6
    dice = overlap / (shares.square().sum(2) + truth.square().sum(2) + 1e-6)
    return F.cross_entropy(logits, classes) + 1 - dice.mean()


def make_work(kind: str, *, batch: int, size: int, width: int, device: torch.device) -> Work:
    """`size` is that of the network's output for a U-Net, and of the images elsewhere."""
    torch.manual_seed(0)
    makers: dict[str, Callable[[], nn.Module]] = {
        "mnist": _mnist,
        "unet": lambda: UNet(width),
        "resnet50": build_resnet50,
    }
    channels, classes = {"mnist": (1, 10), "unet": (1, 2), "resnet50": (3, 1000)}[kind]
    side = size + 2 * MARGIN if kind == "unet" else size
    shape = (batch, size, size) if kind == "unet" else (batch,)
    layout = torch.channels_last
    model = makers[kind]().to(device=device).to(memory_format=layout)  # type: ignore[call-overload]
    images = torch.randn(batch, channels, side, side, device=device).contiguous(memory_format=layout)
    fused = device.type == "cuda"

    def optimiser() -> torch.optim.Optimizer:
        if kind == "unet":
            return torch.optim.Adam(model.parameters(), lr=4e-4, fused=fused, capturable=fused)
        momentum = 0.9 if kind == "resnet50" else 0.0
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum, fused=fused)

    return Work(
        model=model,
        loss=_segmentation_loss
        if kind == "unet"
        else lambda logits, labels: F.cross_entropy(logits.float(), labels),
        optimiser=optimiser,
        images=images,
        labels=torch.randint(classes, shape, device=device),
    )
