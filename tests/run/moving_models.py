"""Models of a user's own that change more than their weights; ranks import them by name."""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Moving", "WithExtraState", "WithExtraTensor"]


class Moving(nn.Module):
    """Its output depends on a running mean that it does not save, and on one in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(144, 10)
        self.register_buffer("mean", torch.zeros(1, 1, 8, 8))
        self.register_buffer("unsaved", torch.zeros(1, 1, 8, 8), persistent=False)
        self.mean: Tensor
        self.unsaved: Tensor
        self.plain = torch.zeros(())

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(images.mean(0, keepdim=True), 0.1)
                self.unsaved.lerp_(images.mean(0, keepdim=True), 0.3)
                self.plain.add_(1)
        logits: Tensor = self.head(self.body(images - self.mean - self.unsaved))
        return logits


class WithExtraState(nn.Module):
    """Saves something that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += int(self.training)
        logits: Tensor = self.body(images)
        return logits

    def get_extra_state(self) -> Any:
        return {"calls": self.calls}

    def set_extra_state(self, state: Any) -> None:
        self.calls = state["calls"]


class WithExtraTensor(WithExtraState):
    """Saves a number of its own as a tensor."""

    def get_extra_state(self) -> Any:
        return torch.tensor(self.calls)

    def set_extra_state(self, state: Any) -> None:
        self.calls = int(state)
