"""One training step of `resnet50` at 224, batch 16, float32, on the CPU, against two peers in the same run.

    python benchmarks/resnet50_step.py [--repeats 3] [--steps 12]

Peers: the same network written by hand in a plain PyTorch loop, in channels_last, over resident float
tensors, and in Lightning with its default Trainer and memory format over a TensorDataset. The three take
turns, each repeat in a process of its own. What is timed is a step from its data to its last weight: the
time between the ends of two steps. The first steps of a process warm up and do not count.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from turns import step_times, take_turns, time_training

IMAGES, BATCH, SIZE, CLASSES = 48, 16, 224, 1000
RATE, MOMENTUM = 0.01, 0.9


def build_network() -> Any:
    """ResNet-50 as one would write it by hand."""
    import torch
    from torch import nn

    def convolution(width: int, new_width: int, size: int, stride: int = 1) -> list[nn.Module]:
        layer = nn.Conv2d(width, new_width, size, stride=stride, padding=size // 2, bias=False)
        return [layer, nn.BatchNorm2d(new_width)]

    class Bottleneck(nn.Module):
        def __init__(self, width: int, inner: int, stride: int, *, projects: bool) -> None:
            super().__init__()
            self.branch = nn.Sequential(
                *convolution(width, inner, 1),
                nn.ReLU(inplace=True),
                *convolution(inner, inner, 3, stride),
                nn.ReLU(inplace=True),
                *convolution(inner, 4 * inner, 1),
            )
            self.shortcut = (
                nn.Sequential(*convolution(width, 4 * inner, 1, stride)) if projects else nn.Identity()
            )
            self.relu = nn.ReLU(inplace=True)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.branch(inputs)
            outputs += self.shortcut(inputs)
            activated: torch.Tensor = self.relu(outputs)
            return activated

    layers = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for inner, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for index in range(blocks):
            stride = 2 if index == 0 and inner > 64 else 1
            layers.append(Bottleneck(width, inner, stride, projects=index == 0))
            width = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def make_data() -> Any:
    """Images and labels in memory, as a plain script holds them."""
    import torch

    torch.manual_seed(0)
    return torch.randn(IMAGES, 3, SIZE, SIZE), torch.randint(CLASSES, (IMAGES,))


def run_plain(steps: int) -> dict[str, Any]:
    import torch
    from torch.nn import functional as F

    images, labels = make_data()
    model = build_network().to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    ends = [time.perf_counter()]
    while len(ends) <= steps:
        order = torch.randperm(IMAGES)
        for first in range(0, IMAGES, BATCH):
            batch = order[first : first + BATCH]
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            ends.append(time.perf_counter())
            if len(ends) > steps:
                break
    return step_times(ends, loss=float(loss.detach()))


def run_lightning(steps: int) -> dict[str, Any]:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning
    import torch
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, TensorDataset

    images, labels = make_data()

    class Module(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.network = build_network()
            self.ends: list[float] = []
            self.loss = torch.zeros(())

        def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.network(batch[0]), batch[1])
            self.loss = loss.detach()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=RATE, momentum=MOMENTUM)

        def on_train_start(self) -> None:
            self.ends.append(time.perf_counter())

        def on_train_batch_end(self, *_: Any) -> None:
            self.ends.append(time.perf_counter())

    module = Module()
    loader = DataLoader(TensorDataset(images, labels), batch_size=BATCH, shuffle=True)
    with tempfile.TemporaryDirectory() as folder:
        lightning.Trainer(max_steps=steps, default_root_dir=folder).fit(module, loader)
    return step_times(module.ends, loss=float(module.loss))


def run_drivetrain(steps: int) -> dict[str, Any]:
    """The same step by the command's own path."""
    return time_training(
        steps,
        images=IMAGES,
        batch=BATCH,
        model="resnet50",
        dataset="synthetic",
        image_size=SIZE,
        num_classes=CLASSES,
        learning_rate=RATE,
        optimizer_params={"momentum": MOMENTUM},
    )


if __name__ == "__main__":
    take_turns(
        __file__,
        {"drivetrain": run_drivetrain, "plain": run_plain, "lightning": run_lightning},
        description=__doc__,
        output=Path(__file__).parent / "results" / "resnet50_step-cpu-2-cores.json",
        steps=12,
    )
