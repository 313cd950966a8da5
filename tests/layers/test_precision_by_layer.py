"""Layers in 16 bits or in float32, by kind and by name."""

import copy

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.layers.precision_by_layer import install_precision_list, layer_kind
from drivetrain.models.create import create_model
from drivetrain.models.zoo.layers import Add
from drivetrain.recipe.params import PrecisionList


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.second(self.first(inputs))
        return hidden @ hidden.mT


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.block = _Block()
        self.head = nn.Linear(4, 4)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.pool(self.norm(self.conv(images))).flatten(1)
        products = self.block(features)
        outputs: Tensor = self.head(features) + products.sum()
        return outputs


def _types(model: nn.Module, *, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.dtype]:
    """The type of what every module gives, under half precision."""
    seen: dict[str, torch.dtype] = {}
    for name, module in model.named_modules():
        module.register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: out.dtype}))
    with torch.autocast("cpu", dtype=dtype):
        model(torch.randn(3, 1, 5, 5))
    return seen


def _halves(*, half: list[str], float32: list[str] | None = None) -> set[str]:
    model = _Net()
    install_precision_list(model, PrecisionList(half=tuple(half), float32=tuple(float32 or ())))
    return {name for name, dtype in _types(model).items() if name and dtype == torch.bfloat16}


def test_without_a_list_all_follow_torch() -> None:
    halves = {name for name, dtype in _types(_Net()).items() if dtype == torch.bfloat16}
    assert {"conv", "norm", "pool", "block", "head"} <= halves


def test_kinds_and_names_choose_layers_and_the_rest_is_float32() -> None:
    assert _halves(half=["conv"]) == {"conv"}
    assert _halves(half=["conv", "pool"]) == {"conv", "pool"}
    assert _halves(half=["linear"]) == {"block", "block.first", "block.second", "head"}
    assert _halves(half=["he*"]) == {"head"}


def test_a_name_stands_for_what_is_inside_and_float32_takes_out_again() -> None:
    assert _halves(half=["linear"], float32=["head"]) == {"block", "block.first", "block.second"}
    assert _halves(half=["block"], float32=["block.second"]) == {"block", "block.first"}
    # Steps between layers that all run in float32 do so too.
    assert _halves(half=["linear"], float32=["block"]) == {"head"}


def test_nothing_changes_outside_of_half_precision_and_in_copies() -> None:
    torch.manual_seed(0)
    model = _Net().eval()
    images = torch.randn(3, 1, 5, 5)
    expected = model(images)
    install_precision_list(model, PrecisionList(half=("conv",)))
    assert torch.equal(model(images), expected)
    twin = copy.deepcopy(model)
    nn.init.zeros_(twin.head.weight)
    assert not torch.equal(twin(images), expected)
    assert torch.equal(model(images), expected)


def test_gradients_go_through() -> None:
    model = _Net()
    install_batch_norm_owner(model, kept_share=0.9)
    install_precision_list(model, PrecisionList(half=("conv", "norm"), float32=("head",)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(torch.randn(3, 1, 5, 5))
    output.float().sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


@pytest.mark.parametrize(
    ("entry", "nearest"), [("covn", "conv"), ("hed", "head"), ("block.frist", "block.first"), ("zzz", "conv")]
)
def test_unknown_names_are_refused_with_the_nearest(entry: str, nearest: str) -> None:
    with pytest.raises(
        BadInputError, match=rf"--precision-list: {entry} is not a kind .*; {nearest} works\."
    ):
        install_precision_list(_Net(), PrecisionList(half=("linear", entry)))


def test_a_list_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"no layer .* in 16 bits.*half: \[conv, linear, norm, pool\]"):
        install_precision_list(_Net(), PrecisionList(half=("conv",), float32=("conv",)))


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (nn.ConvTranspose2d(1, 1, 1), "conv"),
        (nn.GroupNorm(1, 1), "norm"),
        (nn.MaxPool2d(2), "pool"),
        (nn.LeakyReLU(), "activation"),
        (nn.Dropout2d(), "dropout"),
        (nn.Upsample(scale_factor=2), "upsample"),
        (Add(), "other"),
    ],
)
def test_kinds(layer: nn.Module, kind: str) -> None:
    assert layer_kind(layer) == kind


def test_the_projects_models_run_with_a_list() -> None:
    model = create_model("cifar_resnet8", num_classes=10, channels=3)
    install_batch_norm_owner(model, kept_share=0.9)
    install_precision_list(model, PrecisionList(half=("conv", "linear")))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.randn(2, 3, 8, 8)).dtype == torch.bfloat16
