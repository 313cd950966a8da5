"""Folding gives the same output, takes what it may and leaves what it must."""

import pytest
import torch
from torch import Tensor, nn

from drivetrain.inference.model.fold_batch_norm import fold_batch_norm
from drivetrain.models.create import create_model
from drivetrain.models.zoo.layers import Conv2dSame, ConvRelu


def _unsettle(model: nn.Module) -> nn.Module:
    """Gives every batch norm statistics and scales that are no identity."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.3, 3, generator=generator)
            if module.affine:
                nn.init.uniform_(module.weight, 0.5, 2, generator=generator)
                nn.init.normal_(module.bias, generator=generator)
    return model.eval()


@torch.no_grad()
def _difference(model: nn.Module, folded: nn.Module, images: Tensor) -> float:
    expected, found = model(images), folded(images)
    return float((expected - found).abs().max() / expected.abs().max())


@pytest.mark.parametrize(
    ("name", "folded"), [("cifar_resnet8", 7), ("resnet18", 21), ("unet_same", 0)], ids=str
)
def test_models_compute_the_same(name: str, folded: int) -> None:
    params = {"depth": 1, "width": 4} if name == "unet_same" else {}
    model = _unsettle(create_model(name, channels=3, image_size=32, num_classes=5, **params))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    found = fold_batch_norm(model)
    assert len(found.folded) == folded
    assert _difference(model, found.model, torch.rand(2, 3, 32, 32)) < 1e-5
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert sum(isinstance(module, nn.BatchNorm2d) for module in found.model.modules()) == 0


def test_in_float64_nothing_is_lost() -> None:
    model = _unsettle(create_model("cifar_resnet8", channels=1, image_size=8, num_classes=3)).double()
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    assert _difference(model, fold_batch_norm(model).model, images) < 1e-13


def test_a_fold_of_other_statistics_is_noticed() -> None:
    """A negative control of the comparison itself."""
    model = _unsettle(create_model("cifar_resnet8", channels=1, image_size=8, num_classes=3))
    folded = fold_batch_norm(model).model
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.mul_(1.01)  # type: ignore[union-attr]
    assert _difference(model, folded, torch.rand(2, 1, 8, 8)) > 1e-4


class _Net(nn.Module):
    """A convolution and a batch norm, connected in a way that can be chosen."""

    def __init__(self, convolution: nn.Module, *, way: str = "direct", affine: bool = True) -> None:
        super().__init__()
        self.convolution, self.norm = convolution, nn.BatchNorm2d(4, affine=affine)
        self.way = way

    def forward(self, images: Tensor) -> Tensor:
        features = self.convolution(images)
        if self.way == "read twice":
            return self.norm(features) + features  # type: ignore[no-any-return]
        if self.way == "norm twice":
            return self.norm(self.norm(features))  # type: ignore[no-any-return]
        if self.way == "relu between":
            return self.norm(features.relu())  # type: ignore[no-any-return]
        if self.way == "untraceable" and float(features.sum()) > 1e9:
            return features  # type: ignore[no-any-return]
        return self.norm(features)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("convolution", "way", "affine", "is_folded"),
    [
        (nn.Conv2d(4, 4, 3, padding=1), "direct", True, True),
        (nn.Conv2d(4, 4, 3, padding=1, bias=False), "direct", False, True),
        (nn.Conv2d(4, 4, 3, padding=1, groups=2), "direct", True, True),
        (Conv2dSame(4, 4, 3, stride=2), "direct", True, True),
        (ConvRelu(4, 4, 3, padding=1), "direct", True, False),
        (nn.Conv2d(4, 4, 3, padding=1), "read twice", True, False),
        (nn.Conv2d(4, 4, 3, padding=1), "norm twice", True, False),
        (nn.Conv2d(4, 4, 3, padding=1), "relu between", True, False),
        (nn.Conv2d(4, 4, 3, padding=1), "untraceable", True, False),
    ],
)
def test_what_is_folded(convolution: nn.Module, way: str, affine: bool, is_folded: bool) -> None:
    model = _unsettle(_Net(convolution, way=way, affine=affine))
    found = fold_batch_norm(model)
    assert found.folded == (("norm",) if is_folded else ())
    assert _difference(model, found.model, torch.randn(2, 4, 8, 8)) < 1e-5


def test_shared_modules_and_weights_stay() -> None:
    model = _unsettle(_Net(nn.Conv2d(4, 4, 1)))
    shared = nn.Conv2d(4, 4, 1)
    both = nn.Sequential(shared, nn.BatchNorm2d(4), shared)
    tied = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1))
    tied[3].weight = tied[0].weight
    for net in (both, tied):
        assert fold_batch_norm(_unsettle(net)).folded == ()
    assert fold_batch_norm(model).folded == ("norm",)


def test_layers_that_somebody_looks_at_stay() -> None:
    for touched in ("0", "1"):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        assert fold_batch_norm(model).folded == ("1",)
        model.get_submodule(touched).register_forward_hook(lambda _layer, _inputs, outputs: 2 * outputs)
        assert fold_batch_norm(model).folded == ()


class _ReadsMoreInEvaluation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, images: Tensor) -> Tensor:
        features = self.conv(images)
        normed: Tensor = self.norm(features)
        return normed if self.training else normed + features


def test_only_the_steps_of_evaluation_count() -> None:
    model = _unsettle(_ReadsMoreInEvaluation())
    found = fold_batch_norm(model)
    assert not found.folded
    assert _difference(model, found.model, torch.rand(2, 3, 4, 4)) == 0
