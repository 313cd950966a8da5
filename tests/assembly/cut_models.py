"""A small model with everything that stages must keep, and the ways to break its stages."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import drivetrain
from drivetrain.assembly import training_parts
from drivetrain.assembly.cut_check import CutReport, compare_cut
from drivetrain.pipeline.cutting.cut import Cut
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.run.session import RunResult

__all__ = [
    "ONE_PROCESS",
    "Counting",
    "Frozen",
    "Hooked",
    "Small",
    "TakesTensors",
    "breaking",
    "caught",
    "train_small",
]

ONE_PROCESS: dict[str, Any] = {"stages": 2, "pipeline_splits": ["last"], "device_mapping": [0, 0]}


class Counting(nn.Module):
    """Counts its calls in a buffer and multiplies by a weight."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4, 1, 1), 0.5))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return inputs * self.weight


class Frozen(nn.Module):
    """A layer that uses its weight without training it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4, 1, 1), 1.5))

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            weight = self.weight * 2
        return inputs * weight


class Small(nn.Module):
    """Convolutions, a batch norm, a dropout layer used twice, a skip connection and layers of a user."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.random.get_rng_state()
        torch.manual_seed(1)
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.frozen = Frozen()
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.counting = Counting()
        self.last = nn.Linear(4, 2)
        torch.random.set_rng_state(generator)

    def forward(self, images: Tensor) -> Tensor:
        features = torch.relu(self.norm(self.first(images)))
        deeper = self.counting(self.second(self.frozen(self.drop(features))))
        logits: Tensor = self.last(self.drop(torch.relu(deeper + features)).mean((2, 3)))
        return logits


class Hooked(Small):
    """A hook changes the output of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.second.register_forward_hook(lambda _module, _args, output: output + 1.0)


class TakesTensors(Small):
    """Code that a trace misreads: the values that a trace sees are of another type."""

    def forward(self, images: Tensor) -> Tensor:
        features = self.first(images)
        if type(features) is Tensor:
            features = features * 2
        logits: Tensor = self.last(self.second(features).mean((2, 3)))
        return logits


def train_small(path: Path, model: nn.Module, **options: Any) -> RunResult:
    """Trains on 16 images, two micro-batches of four per update."""
    images = np.random.default_rng(0).integers(0, 255, (16, 6, 6, 1), dtype=np.uint8)
    given: dict[str, Any] = {"micro_batch_size": 4, "global_batch_size": 8, "num_epochs": 1, "compile": "off"}
    return drivetrain.train(
        data=(images, np.arange(16) % 2),
        model=model,
        output_dir=str(path),
        **{**given, "device": "cpu", **options},
    )


class _CaughtError(Exception):
    pass


def caught(
    monkeypatch: pytest.MonkeyPatch, path: Path, model: nn.Module, **options: Any
) -> partial[CutReport]:
    """The comparison that a training (of two stages, by default) would make, to be made any number of times.

    The training ends there.
    """
    calls: list[partial[CutReport]] = []

    def catch(*args: Any, **kwargs: Any) -> CutReport:
        calls.append(partial(compare_cut, *args, **kwargs))
        raise _CaughtError

    with monkeypatch.context() as patched:
        patched.setattr(training_parts, "compare_cut", catch)
        with pytest.raises(_CaughtError):
            train_small(path, model, **(options or ONE_PROCESS))
    return calls[0]


def breaking(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[nn.Module], None]) -> None:
    """Spoils the model in every cut that is made from now on, and never the whole model."""
    cut_well = StagePlan.cut

    def cut(plan: StagePlan) -> Cut:
        spoil(plan.traced.model)
        return cut_well(plan)

    monkeypatch.setattr(StagePlan, "cut", cut)
