"""A stand-in for timm 1.0: a residual-free network, and one of patches that is built for a size."""

from collections.abc import Mapping
from typing import Any

import torch
from timm.models import get_pretrained_cfg, is_model
from torch import Tensor, nn

__all__ = ["create_model", "is_model", "list_models", "list_pretrained"]


class ConvNet(nn.Module):
    """Any image size."""

    def __init__(self, *, in_chans: int = 3, num_classes: int = 1000, width: int = 4) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(torch.relu(self.bn1(self.conv1(images))).mean((2, 3)))
        return logits


class PatchNet(nn.Module):
    """A position for each patch, so one image size."""

    def __init__(self, *, in_chans: int = 3, num_classes: int = 1000, img_size: int = 16) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(in_chans, 6, 4, stride=4)
        self.pos_embed = nn.Parameter(torch.zeros(1, 6, img_size // 4, img_size // 4))
        self.head = nn.Linear(6, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head((self.patch_embed(images) + self.pos_embed).tanh().mean((2, 3)))
        return logits


_CLASSES: dict[str, type[nn.Module]] = {"resnet4": ConvNet, "resnet8": ConvNet, "vit_small": PatchNet}


def list_models() -> list[str]:
    return sorted(_CLASSES)


def list_pretrained() -> list[str]:
    return ["resnet4.a1_in1k", "vit_small"]


def create_model(
    name: str,
    pretrained: bool = False,
    pretrained_cfg_overlay: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> nn.Module:
    assert get_pretrained_cfg(name) is not None
    model = _CLASSES[name.partition(".")[0]](**arguments)
    if pretrained:
        assert pretrained_cfg_overlay is not None, "a download"
        model.load_state_dict(checkpoint_filter_fn(pretrained_cfg_overlay["state_dict"], model))
    return model


def checkpoint_filter_fn(state_dict: Mapping[str, Tensor], model: Any) -> dict[str, Tensor]:
    """Resamples the positions, as timm does for a model that was built for another size."""
    changed = dict(state_dict)
    if isinstance(model, PatchNet):
        size = model.pos_embed.shape[-2:]
        changed["pos_embed"] = nn.functional.interpolate(changed["pos_embed"], size=size, mode="bicubic")
    return changed
