"""Blocks of models of many builds. The libraries' networks are stand-ins of the same structure."""

import re
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import nn

from drivetrain.models.create import create_model
from drivetrain.optim.blocks import blocks_of


def _names(model: nn.Module) -> list[str]:
    blocks = blocks_of(model)
    spread = [name for block in blocks for name in block.parameters]
    assert sorted(spread) == sorted(name for name, _ in model.named_parameters())
    return [block.name for block in blocks]


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)


class _ResNet(nn.Module):
    """As those of torchvision and timm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(_Residual(), _Residual())
        self.layer2 = nn.Sequential(_Residual())
        self.fc = nn.Linear(4, 2)


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(4), nn.LayerNorm(4)
        self.attention = nn.Linear(4, 12)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.zeros(1, 5, 4))
        self.layers = nn.Sequential(*(_Layer() for _ in range(3)))
        self.ln = nn.LayerNorm(4)


class _Transformer(nn.Module):
    """As those of torchvision: embeddings inside and outside of the encoder, a norm at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, 4))
        self.conv_proj = nn.Conv2d(3, 4, 4)
        self.encoder = _Encoder()
        self.heads = nn.Sequential(nn.Linear(4, 2))


def _plain() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(4, 2)),
    )


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (_ResNet, ["conv1", "layer1.0", "layer1.1", "layer2.0", "fc"]),
        (_Transformer, ["class_token", *(f"encoder.layers.{index}" for index in range(3)), "heads.0"]),
        (_plain, ["0", "3", "7"]),
        (lambda: nn.Linear(3, 2), ["weight"]),
    ],
)
def test_blocks_by_structure(build: Callable[[], nn.Module], expected: list[str]) -> None:
    assert _names(build()) == expected


def test_a_norm_belongs_to_what_is_before_it() -> None:
    stem, *_, last, head = blocks_of(_Transformer())
    assert stem.parameters == ("class_token", "conv_proj.weight", "conv_proj.bias", "encoder.pos_embedding")
    assert last.parameters[-2:] == ("encoder.ln.weight", "encoder.ln.bias")
    assert head.parameters == ("heads.0.weight", "heads.0.bias")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cifar_resnet8", ["conv1_conv", "conv2_block1", "conv3_block1", "conv4_block1", "fc_layer"]),
        ("mnist_cnn", ["conv2d_0", "conv2d_1", "dense"]),
    ],
)
def test_layers_that_lie_next_to_each_other_are_joined_by_name(name: str, expected: list[str]) -> None:
    assert _names(create_model(name, image_size=32)) == expected


class _OfTimm(_ResNet):
    """A network that says itself what belongs together, with a norm between the last block and the head."""

    def __init__(self) -> None:
        super().__init__()
        self.head_norm = nn.BatchNorm2d(4)
        self.pretrained_cfg = {"classifier": "fc"}

    def group_matcher(self, *, coarse: bool) -> dict[str, str]:
        assert not coarse
        return {"stem": r"^(conv1|bn1)", "blocks": r"^layer(\d+)"}


def _group_parameters(model: nn.Module, matcher: dict[str, str], *, reverse: bool) -> dict[str, int]:
    """What timm's function of this name does, for matchers of two patterns."""
    assert reverse

    def depth_of(name: str) -> int:
        block = re.match(matcher["blocks"], name)
        if block:
            return int(block[1])
        return 0 if re.match(matcher["stem"], name) else 3

    return {name: depth_of(name) for name, _ in model.named_parameters()}


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = ModuleType("timm.models")
    stand_in.group_parameters = _group_parameters  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm.models", stand_in)


@pytest.mark.usefixtures("timm")
def test_a_network_of_timm_is_asked() -> None:
    assert _names(_OfTimm()) == ["conv1", "layer1", "layer2.0", "fc"]
    assert set(blocks_of(_OfTimm())[-1].parameters) == {
        *("head_norm.weight", "head_norm.bias"),
        *("fc.weight", "fc.bias"),
    }


@pytest.mark.usefixtures("timm")
def test_a_network_of_timm_is_found_inside_another_module() -> None:
    assert _names(nn.ModuleDict({"model": _OfTimm()})) == [
        "model.conv1",
        "model.layer1",
        "model.layer2.0",
        "model.fc",
    ]
