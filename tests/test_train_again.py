"""A model that a training returned is trained again: as if its weights were in a new model."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import drivetrain


class _Net(nn.Module):
    """Batch norm, dropout as a layer and as a function, and a convolution that is changed on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.narrow = nn.Conv2d(8, 8, 1, stride=2)
        self.drop = nn.Dropout(0.5)
        self.block = _Block()
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        features = self.narrow(torch.relu(self.norm(self.conv(images))))
        logits: Tensor = self.head(self.block(self.drop(features.mean((2, 3)))))
        return logits


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.dropout(self.layer(features), 0.25, self.training)


def _train(model: nn.Module, path: Path, *, seed: int) -> nn.Module:
    rng = np.random.default_rng(0)
    data = (rng.random((32, 8, 8, 1), dtype=np.float32), np.arange(32) % 3)
    options: dict[str, Any] = {"num_epochs": 2, "micro_batch_size": 8, "learning_rate": 0.05, "quiet": True}
    return drivetrain.train(model=model, data=data, output_dir=path, seed=seed, **options).model


def test_a_returned_model_trains_as_a_new_one_with_its_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    returned = _train(_Net(), tmp_path / "first", seed=1)
    new = _Net()
    new.load_state_dict(returned.state_dict())
    hooks = [len(module._forward_hooks) for module in returned.modules()]

    again = _train(returned, tmp_path / "again", seed=2)
    expected = _train(new, tmp_path / "new", seed=2).state_dict()
    other = _train(new, tmp_path / "other", seed=3).state_dict()

    assert all(torch.equal(value, expected[name]) for name, value in again.state_dict().items())
    assert not torch.equal(expected["conv.weight"], other["conv.weight"])
    assert [len(module._forward_hooks) for module in again.modules()] == hooks
    assert isinstance(again.get_submodule("norm"), nn.BatchNorm2d)
