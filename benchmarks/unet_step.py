"""One training step of `unet_same` (width 32, 256 px, batch 2, float32) on the CPU, against a peer.

    python benchmarks/unet_step.py [--repeats 3] [--steps 12]

The peer is the same network and loss written by hand in a plain PyTorch loop, in channels_last, over
resident float images and class maps. The two take turns, each repeat in a process of its own. What is timed
is a step from its data to its last weight: the time between the ends of two steps.
"""

import time
from pathlib import Path
from typing import Any

from turns import step_times, take_turns, time_training

IMAGES, BATCH, SIZE, WIDTH, DEPTH = 8, 2, 256, 32, 4
RATE, MOMENTUM = 0.01, 0.9


def build_network() -> Any:
    """A U-Net as one would write it by hand."""
    import torch
    from torch import nn

    def double(width: int, new_width: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(width, new_width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(new_width, new_width, 3, padding=1),
            nn.ReLU(inplace=True),
        )

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [WIDTH * 2**level for level in range(DEPTH + 1)]
            self.down = nn.ModuleList(double(a, b) for a, b in zip([1, *widths], widths, strict=False))
            pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
            self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
            self.merge = nn.ModuleList(double(a, b) for a, b in pairs)
            self.last = nn.Conv2d(WIDTH, 2, 1)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            features, skips = images, []
            for level, block in enumerate(self.down):
                features = block(features)
                if level < DEPTH:
                    skips.append(features)
                    features = nn.functional.max_pool2d(features, 2)
            for up, merge in zip(self.up, self.merge, strict=True):
                grown = nn.functional.relu(up(features))
                features = merge(torch.cat([grown, skips.pop()], 1))
            logits: torch.Tensor = self.last(features)
            return logits

    return UNet()


def run_plain(steps: int) -> dict[str, Any]:
    import torch
    from torch.nn import functional as F

    torch.manual_seed(0)
    images = torch.randn(IMAGES, 1, SIZE, SIZE).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(2, (IMAGES, SIZE, SIZE))
    model = build_network().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)

    def loss_of(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        shares = logits.softmax(1).flatten(2)
        truth = F.one_hot(classes, 2).movedim(3, 1).flatten(2).float()
        overlap = 2 * (shares * truth).sum(2) + 1e-6
        dice = overlap / (shares.square().sum(2) + truth.square().sum(2) + 1e-6)
        return F.cross_entropy(logits, classes) + 1 - dice.mean()

    ends = [time.perf_counter()]
    while len(ends) <= steps:
        order = torch.randperm(IMAGES)
        for first in range(0, IMAGES, BATCH):
            batch = order[first : first + BATCH]
            loss = loss_of(model(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            ends.append(time.perf_counter())
            if len(ends) > steps:
                break
    return step_times(ends, loss=float(loss.detach()))


def run_drivetrain(steps: int) -> dict[str, Any]:
    """The same step by the command's own path."""
    return time_training(
        steps,
        images=IMAGES,
        batch=BATCH,
        model="unet_same",
        model_width=WIDTH,
        model_params={"depth": DEPTH},
        dataset="synthetic-em",
        image_size=SIZE,
        augment=False,
        learning_rate=RATE,
        optimizer_params={"momentum": MOMENTUM},
    )


if __name__ == "__main__":
    take_turns(
        __file__,
        {"drivetrain": run_drivetrain, "plain": run_plain},
        description=__doc__,
        output=Path(__file__).parent / "results" / "unet_step-cpu-2-cores.json",
        steps=12,
    )
