"""Layers in the form for CUDA devices compute what the model's own do, here on a CPU."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from drivetrain.inference.model import fused_layers
from drivetrain.inference.model.fold_batch_norm import fold_batch_norm
from drivetrain.inference.model.fused_layers import conv_relu, fuse_layers, linear_relu
from drivetrain.models.create import create_model


def _kinds(model: nn.Module) -> Counter[str]:
    return Counter(type(layer).__name__.lstrip("_") for layer in model.modules())


@pytest.mark.parametrize(
    ("name", "size", "kinds"),
    [
        ("unet", 20, {"PatchConvRelu": 1, "FusedConvRelu": 17, "MatrixUpConvRelu": 4}),
        ("unet_medical", 20, {"PatchConvRelu": 1, "FusedConvRelu": 17}),
        ("unet_same", 32, {"PatchConvRelu": 1, "FusedConvRelu": 17, "MatrixUpConvRelu": 4}),
        ("cifar_resnet8", 16, {"PatchConvRelu": 1, "FusedConvRelu": 1}),
        ("resnet50", 64, {"FusedConvRelu": 33}),
    ],
)
def test_models_compute_the_same(name: str, size: int, kinds: dict[str, int]) -> None:
    torch.manual_seed(0)
    width = {} if "resnet" in name else {"width": 4}
    model = create_model(name, channels=1, image_size=size, num_classes=2, **width).double()
    folded = fold_batch_norm(model).model
    fused = fuse_layers(folded, dtype=torch.float64)
    found = _kinds(fused)
    assert {kind: found[kind] for kind in kinds} == kinds
    side = size + 184 if name in ("unet", "unet_medical") else size
    images = torch.rand(2, 1, side, side, dtype=torch.float64)
    with torch.inference_mode():
        expected, computed = folded(images), fused(images)
    assert torch.allclose(computed, expected, rtol=1e-9, atol=1e-12)
    assert _kinds(folded).keys().isdisjoint(kinds)


class _Small(nn.Module):
    def __init__(self, convolution: nn.Module, relu: nn.Module | None = None) -> None:
        super().__init__()
        self.convolution = convolution
        self.relu = nn.ReLU() if relu is None else relu

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.relu(self.convolution(images))
        return outputs


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(4, 6, 3, padding=1),
        nn.Conv2d(4, 6, 3, stride=2, bias=False),
        nn.Conv2d(4, 6, (1, 5), stride=(2, 1), padding=(0, 2)),
        nn.Conv2d(3, 6, 3),
        nn.Conv2d(1, 6, 3, padding=(1, 2)),
        nn.Conv2d(2, 5, (3, 4)),
    ],
)
def test_every_shape_of_a_convolution(convolution: nn.Conv2d) -> None:
    inputs = convolution.in_channels
    model = _Small(convolution).double()
    fused = fuse_layers(model, dtype=torch.float64)
    assert type(fused.get_submodule("relu")) is nn.Identity
    images = torch.randn(2, inputs, 9, 11, dtype=torch.float64)
    with torch.inference_mode():
        expected, found = model(images), fused(images)
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert (found == 0).any()


@pytest.mark.parametrize(
    "model",
    [
        _Small(nn.Conv2d(4, 6, 3, groups=2)),
        _Small(nn.Conv2d(4, 6, 3, dilation=2)),
        _Small(nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect")),
        _Small(nn.Conv2d(4, 6, 3, padding="same")),
        _Small(nn.Conv2d(4, 6, 3), nn.ReLU6()),
    ],
)
def test_what_the_operation_cannot_do_stays(model: nn.Module) -> None:
    assert _kinds(fuse_layers(model, dtype=torch.float64)) == _kinds(model)


def test_layers_with_a_forward_of_their_own_or_hooks_stay() -> None:
    model = _Small(nn.Conv2d(4, 6, 3))
    model.convolution.register_forward_hook(lambda *_: None)
    assert _kinds(fuse_layers(model, dtype=torch.float64)) == _kinds(model)
    other = _Small(nn.Conv2d(4, 6, 3))
    other.relu.forward = torch.abs
    assert _kinds(fuse_layers(other, dtype=torch.float64)) == _kinds(other)


def test_operations_tell_their_shapes_and_layout_beforehand() -> None:
    images = torch.randn(2, 4, 9, 11).to(memory_format=torch.channels_last)
    weight, bias = torch.randn(6, 4, 3, 1), torch.randn(6)
    torch.library.opcheck(conv_relu, (images, weight, bias, [2, 1], [1, 0]))
    torch.library.opcheck(linear_relu, (torch.randn(8, 5), torch.randn(5, 6), bias))


def test_few_products_decide_for_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_layers, "_FEW_PRODUCTS", 0)
    fused = fuse_layers(_Small(nn.Conv2d(1, 6, 3)), dtype=torch.float64)
    assert _kinds(fused)["PatchConvRelu"] == 0
