"""The registry of models."""

from collections.abc import Callable
from enum import Enum
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import segmentation

__all__ = ["get_model", "get_model_builder", "get_model_weights", "list_models", "segmentation"]


class Small(nn.Module):
    """A classifier."""

    def __init__(self, *, num_classes: int = 1000, width: int = 4) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(torch.relu(self.conv1(images)).mean((2, 3)))
        return logits


def resnet4(*, weights: Any = None, num_classes: int = 1000, **arguments: Any) -> nn.Module:
    """A classifier of four layers."""
    assert weights is None, "a download"
    return Small(num_classes=num_classes, **arguments)


def _transforms(**sizes: int) -> SimpleNamespace:
    given = {key: [value] for key, value in sizes.items()}
    return SimpleNamespace(mean=[0.5, 0.4, 0.3], std=[0.25, 0.2, 0.1], **given)


class _Weights(Enum):
    """Each set of weights knows its transforms, an address, and notes."""

    @property
    def transforms(self) -> Any:
        return self.value["transforms"]

    @property
    def url(self) -> str:
        return "https://weights.example/file.pth"

    @property
    def meta(self) -> dict[str, Any]:
        return {"categories": ["a", "b", "c"], "min_size": (8, 8)}


class ResNet4Weights(_Weights):
    DEFAULT = {"transforms": partial(_transforms, crop_size=24, resize_size=28)}  # noqa: RUF012


class FcnWeights(_Weights):
    DEFAULT = {"transforms": partial(_transforms, resize_size=40)}  # noqa: RUF012


_BUILDERS: dict[str, Callable[..., nn.Module]] = {"resnet4": resnet4, "fcn_small": segmentation.fcn_small}
_WEIGHTS: dict[str, Any] = {"resnet4": ResNet4Weights, "fcn_small": FcnWeights}


def list_models(module: ModuleType | None = None) -> list[str]:
    if module is None:
        return [*_BUILDERS, "fasterrcnn_small"]
    return ["fcn_small"] if module is segmentation else ["resnet4"]


def get_model_builder(name: str) -> Callable[..., nn.Module]:
    return _BUILDERS[name]


def get_model(name: str, **arguments: Any) -> nn.Module:
    return _BUILDERS[name](**arguments)


def get_model_weights(name: str) -> Any:
    return _WEIGHTS[name]
