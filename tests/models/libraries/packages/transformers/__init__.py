"""A stand-in for transformers 5: configurations by type, from a folder or from the cache, and two models."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch import Tensor, nn

__all__ = ["AutoConfig", "AutoModelForImageClassification", "AutoModelForSemanticSegmentation"]


class Config:
    """The values of a model's configuration."""

    def __init__(self, model_type: str, **values: Any) -> None:
        self.model_type = model_type
        self.num_channels, self.num_labels, self.hidden_size = 3, 2, 4
        if model_type == "vit":
            self.image_size = 16
        self.num_hidden_layers = 12
        vars(self).update(values)
        self.stage_names = [f"stage{index}" for index in range(1, self.num_hidden_layers + 1)]
        self.out_features: list[str] = values.get("out_features", self.stage_names[-1:])
        if not set(self.out_features) <= set(self.stage_names):
            raise ValueError(f"out_features must be a subset of {self.stage_names}")

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)


class AutoConfig:
    """Configurations by name."""

    @staticmethod
    def for_model(name: str) -> Config:
        return Config(name)

    @staticmethod
    def from_pretrained(name: str, *, local_files_only: bool) -> Config:
        from huggingface_hub import try_to_load_from_cache

        assert local_files_only, "a download"
        inside = Path(name) / "config.json"
        found = inside if inside.is_file() else try_to_load_from_cache(name, "config.json")
        return Config(**json.loads(Path(str(found)).read_text()))


class VitModel(nn.Module):
    """Patches with positions."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        side = config.image_size // 4
        self.projection = nn.Conv2d(config.num_channels, config.hidden_size, 4, stride=4)
        self.position_embeddings = nn.Parameter(torch.zeros(1, config.hidden_size, side, side))

    def forward(self, images: Tensor) -> Tensor:
        embedded: Tensor = self.projection(images) + self.position_embeddings
        return embedded.tanh()


class ViTForImageClassification(nn.Module):
    """A classifier."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.vit = VitModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, images: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.classifier(self.vit(images).mean((2, 3))))


class SegformerForSemanticSegmentation(nn.Module):
    """Logits of a quarter of the image's size."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = nn.Conv2d(config.num_channels, config.hidden_size, 4, stride=4)
        self.decode_head = nn.Conv2d(config.hidden_size, config.num_labels, 1)

    def forward(self, images: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.decode_head(self.encoder(images).tanh()))


class AutoModelForImageClassification:
    """Classifiers by configuration, and with the weights in a folder."""

    @staticmethod
    def from_pretrained(
        folder: Path, *, local_files_only: bool, output_loading_info: bool
    ) -> tuple[nn.Module, dict[str, Any]]:
        assert local_files_only, "a download"
        assert output_loading_info
        model = ViTForImageClassification(AutoConfig.from_pretrained(str(folder), local_files_only=True))
        lacks = model.load_state_dict(torch.load(folder / "pytorch_model.bin"), strict=False)
        return model, {"missing_keys": set(lacks.missing_keys)}

    @staticmethod
    def from_config(config: Config) -> nn.Module:
        return ViTForImageClassification(config)


class AutoModelForSemanticSegmentation:
    """Segmentation models by configuration."""

    @staticmethod
    def from_config(config: Config) -> nn.Module:
        return SegformerForSemanticSegmentation(config)
