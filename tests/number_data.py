"""A small table and small signals with two classes, and models for them."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

FEATURES, CHANNELS, LENGTH = 5, 2, 24


def table(rows: int = 48) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    labels = np.arange(rows, dtype=np.int64) % 2
    values = np.random.default_rng(0).normal(size=(rows, FEATURES))
    values[:, 1] += 3 * labels
    return values, labels


def signals(samples: int = 48) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """As numpy users have them: (samples, length, channels)."""
    labels = np.arange(samples, dtype=np.int64) % 2
    values = np.random.default_rng(1).normal(size=(samples, LENGTH, CHANNELS)).astype(np.float32)
    values[..., 0] += 2 * labels[:, None] * np.sin(np.arange(LENGTH))
    return values, labels


class Perceptron(nn.Module):
    """Has a batch norm and dropout, and takes (samples, features) only."""

    def __init__(self, num_features: int = FEATURES, num_classes: int = 2) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Linear(num_features, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)
        )
        self.second = nn.Sequential(nn.Linear(16, 8), nn.ReLU())
        self.head = nn.Linear(8, num_classes)

    def forward(self, rows: Tensor) -> Tensor:
        assert rows.dim() == 2
        logits: Tensor = self.head(self.second(self.first(rows)))
        return logits


class Convolutions(nn.Module):
    """Takes (samples, channels, length) only, in torch's default layout."""

    def __init__(self, channels: int = CHANNELS, num_classes: int = 2) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(channels, 6, 5, bias=False), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.1)
        )
        self.more = nn.Sequential(nn.Conv1d(6, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1))
        self.head = nn.Linear(8, num_classes)

    def forward(self, signals: Tensor) -> Tensor:
        assert signals.dim() == 3
        values = signals.view(signals.size(0), -1).view_as(signals)
        logits: Tensor = self.head(self.more(self.features(values)).flatten(1))
        return logits


def as_tensor(values: NDArray[np.float32]) -> Tensor:
    """The same signals as torch users have them: (samples, channels, length)."""
    return torch.from_numpy(values).permute(0, 2, 1)
