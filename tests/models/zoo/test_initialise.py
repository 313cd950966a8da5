import math

import pytest
import torch

from drivetrain.models.create import create_model
from drivetrain.models.zoo.cifar_resnet import cifar_resnet8
from drivetrain.models.zoo.initialise import (
    fan_out_uniform,
    glorot_uniform,
    he_normal,
    he_normal_fan_out,
    initialise_parameters,
    normal,
    ones,
    variance_scaling,
    zeros,
)


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_variance_scaling_has_variance_one_over_fan_in_and_no_tails() -> None:
    kernel = torch.empty(256, 64, 3, 3)
    variance_scaling(kernel, generator())
    fan_in = 64 * 9
    bound = 2 * math.sqrt(1 / fan_in) / 0.87962566103423978
    assert kernel.var().item() == pytest.approx(1 / fan_in, rel=0.01)
    assert abs(kernel.mean().item()) < 4 * math.sqrt(1 / fan_in / kernel.numel())
    assert 0.999 * bound < kernel.abs().max().item() <= bound * (1 + 1e-6)


def test_variance_scaling_is_a_truncated_normal_and_not_a_uniform() -> None:
    kernel = torch.empty(256, 64, 3, 3)
    variance_scaling(kernel, generator())
    deviation = math.sqrt(1 / (64 * 9)) / 0.87962566103423978
    share_within_one = (kernel.abs() < deviation).double().mean().item()
    assert share_within_one == pytest.approx(0.6826895 / 0.9544997, abs=0.005)


def test_he_normal_has_twice_that_variance() -> None:
    kernel, other = torch.empty(256, 64, 3, 3), torch.empty(256, 64, 3, 3)
    he_normal(kernel, generator())
    variance_scaling(other, generator())
    assert kernel.var().item() == pytest.approx(2 / (64 * 9), rel=0.01)
    assert torch.allclose(kernel, other * math.sqrt(2), atol=0, rtol=1e-6)


def test_fan_out_counts_outputs_in_place_of_inputs() -> None:
    kernel, swapped = torch.empty(256, 64, 3, 3), torch.empty(64, 256, 3, 3)
    he_normal_fan_out(kernel, generator())
    he_normal(swapped, generator())
    assert torch.equal(kernel.flatten(), swapped.flatten())
    assert kernel.var().item() == pytest.approx(2 / (256 * 9), rel=0.01)


def test_a_dense_layer_by_fan_out_fills_its_interval_evenly() -> None:
    kernel = torch.empty(16, 4096)
    fan_out_uniform(kernel, generator())
    assert 0.999 * 0.25 < kernel.abs().max().item() <= 0.25
    assert kernel.var().item() == pytest.approx(0.25**2 / 3, rel=0.03)


@pytest.mark.parametrize("shape", [(64, 32, 3, 3), (10, 1600)])
def test_glorot_uniform_fills_its_interval_evenly(shape: tuple[int, ...]) -> None:
    kernel = torch.empty(shape)
    glorot_uniform(kernel, generator())
    receptive_field = math.prod(shape[2:])
    limit = math.sqrt(6 / ((shape[0] + shape[1]) * receptive_field))
    assert 0.999 * limit < kernel.abs().max().item() <= limit
    assert kernel.var().item() == pytest.approx(limit**2 / 3, rel=0.03)


def test_normal_has_the_deviation_asked_for_and_tails() -> None:
    kernel = torch.empty(256, 64, 3, 3)
    normal(0.01)(kernel, generator())
    assert kernel.std().item() == pytest.approx(0.01, rel=0.01)
    assert (kernel.abs() > 0.02).double().mean().item() == pytest.approx(0.0455, rel=0.03)
    assert bool(kernel.isfinite().all())


def test_constants_draw_nothing() -> None:
    source = generator()
    state = source.get_state()
    tensor = torch.full((3,), 7.0)
    zeros(tensor, source)
    assert tensor.tolist() == [0, 0, 0]
    ones(tensor, source)
    assert tensor.tolist() == [1, 1, 1]
    assert torch.equal(source.get_state(), state)


def test_weights_depend_on_the_name_and_not_on_the_order_of_construction() -> None:
    model = cifar_resnet8(channels=3, num_classes=10)
    reordered = cifar_resnet8(channels=3, num_classes=10)
    for name, layer in reversed(list(reordered._modules.items())):
        del reordered._modules[name]
        reordered._modules[name] = layer
    assert list(dict(reordered.named_parameters())) != list(dict(model.named_parameters()))
    initialise_parameters(model, seed=3)
    initialise_parameters(reordered, seed=3)
    others = dict(reordered.named_parameters())
    assert all(torch.equal(parameter, others[name]) for name, parameter in model.named_parameters())


def test_equal_shapes_of_different_names_are_drawn_apart() -> None:
    weights = create_model("cifar_resnet8").state_dict()
    first, second = weights["conv2_block1_layer1_conv.weight"], weights["conv2_block1_layer2_conv.weight"]
    assert first.shape == second.shape
    assert abs(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1].item()) < 0.1


def test_a_deeper_network_shares_the_weights_of_the_layers_both_have() -> None:
    shallow, deep = create_model("cifar_resnet8").state_dict(), create_model("cifar_resnet20").state_dict()
    assert set(shallow) < set(deep)
    assert all(torch.equal(value, deep[name]) for name, value in shallow.items())


def test_biases_and_norms_start_neutral() -> None:
    for name, value in create_model("cifar_resnet8").state_dict().items():
        layer, role = name.split(".")
        if role == "bias" or role == "running_mean":
            assert not value.any(), name
        if layer.endswith("_bn") and role in ("weight", "running_var"):
            assert bool((value == 1).all()), name
