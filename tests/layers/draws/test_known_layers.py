"""Known random layers draw by their place, with the distribution of torch's layers, and stay themselves."""

import pickle
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.dropout import CounterDropout
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.layers.draws.site import Site
from tests.layers.draws.drawing_models import DropPath

SAMPLES = 512


def _placed(layer: nn.Module, *, samples: int = SAMPLES) -> nn.Module:
    model = nn.Sequential(layer)
    context = UpdateContext(torch.device("cpu"))
    context.begin_forward(torch.arange(samples))
    install_counter_dropout(model, seed=1, context=context)
    return model


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_variance_and_drops_to_torchs_value(
    kind: type[nn.AlphaDropout | nn.FeatureAlphaDropout],
) -> None:
    inputs = _normal(SAMPLES, 64, 4)
    expected_values = {round(value, 4) for value in kind(0.3)(torch.zeros(SAMPLES, 64, 4)).unique().tolist()}
    outputs = _placed(kind(0.3))(inputs)
    assert abs(outputs.mean().item()) < 0.03
    assert abs(outputs.std().item() - 1) < 0.03
    zeros = _placed(kind(0.3))(torch.zeros(SAMPLES, 64, 4))
    assert {round(value, 4) for value in zeros.unique().tolist()} == expected_values


def test_feature_alpha_dropout_drops_whole_channels() -> None:
    outputs = _placed(nn.FeatureAlphaDropout(0.5))(torch.ones(SAMPLES, 8, 4, 4)).flatten(2)
    assert torch.equal(outputs.amax(2), outputs.amin(2))


def test_random_slopes_are_uniform_between_the_limits() -> None:
    slopes = -_placed(nn.RReLU(0.2, 0.6))(-torch.ones(SAMPLES, 100))
    assert 0.2 <= slopes.min().item() < 0.201
    assert 0.599 < slopes.max().item() <= 0.6
    assert abs(slopes.mean().item() - 0.4) < 0.002
    assert torch.equal(_placed(nn.RReLU())(torch.ones(SAMPLES, 3)), torch.ones(SAMPLES, 3))


@pytest.mark.parametrize("scale_by_keep", [True, False])
def test_drop_path_is_known_by_what_it_does(scale_by_keep: bool) -> None:
    model = _placed(DropPath(0.25, scale_by_keep=scale_by_keep))
    (layer,) = model.children()
    assert isinstance(layer, DropPath)
    assert isinstance(layer.site, Site)
    rows = model(torch.ones(SAMPLES, 3, 2)).flatten(1)
    assert torch.equal(rows.amax(1), rows.amin(1))
    assert rows.amax().item() == pytest.approx(4 / 3 if scale_by_keep else 1.0)
    assert abs((rows[:, 0] == 0).float().mean().item() - 0.25) < 0.06
    assert torch.equal(model.eval()(torch.ones(4, 3)), torch.ones(4, 3))


def test_a_layer_of_a_users_class_can_be_pickled_and_copied() -> None:
    model = _placed(DropPath(0.25))
    expected = _placed(DropPath(0.25))(torch.ones(SAMPLES, 3))
    for copied in (pickle.loads(pickle.dumps(model)), deepcopy(model)):
        (layer,) = copied.children()
        assert isinstance(layer, DropPath)
        assert torch.equal(copied(torch.ones(SAMPLES, 3)), expected)


class DropPathWithScale(DropPath):
    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return super().forward(x) * scale


def test_a_layer_with_more_arguments_is_left_alone() -> None:
    (layer,) = _placed(DropPathWithScale(0.25)).children()
    assert type(layer) is DropPathWithScale


class OtherDropPath(nn.Module):
    """The name of a known layer, but another meaning."""

    drop_prob = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand(len(x), *(1 for _ in x.shape[1:])) * self.drop_prob


def test_a_layer_of_that_name_with_another_meaning_is_left_alone() -> None:
    (layer,) = _placed(OtherDropPath()).children()
    assert type(layer) is OtherDropPath


def test_a_layer_keeps_its_object_attributes_hooks_and_class() -> None:
    layer = nn.Dropout(0.25)
    seen: list[Tensor] = []
    layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    model = _placed(layer, samples=4)
    assert next(model.children()) is layer
    assert isinstance(layer, nn.Dropout)
    assert isinstance(layer, CounterDropout)
    assert (layer.p, layer.inplace) == (0.25, False)
    outputs = model(torch.ones(4, 8))
    assert seen[0] is outputs


def test_a_rate_that_code_changes_takes_effect() -> None:
    layer = nn.Dropout(0.25)
    model = _placed(layer, samples=4)
    layer.p = 0.0
    assert torch.equal(model(torch.ones(4, 64)), torch.ones(4, 64))


def test_dropout_in_place_changes_its_input() -> None:
    model = _placed(nn.Dropout(0.5, inplace=True), samples=4)
    inputs = torch.ones(4, 64)
    outputs = model(inputs)
    assert outputs is inputs
    assert (inputs == 0).any()


def test_channels_are_dropped_whole_where_a_sample_has_several_rows() -> None:
    outputs = _placed(nn.Dropout2d(0.5), samples=4)(torch.ones(12, 16, 3, 3)).flatten(2)
    assert torch.equal(outputs.amax(2), outputs.amin(2))
    assert 0 < int((outputs.amax(2) == 0).sum()) < outputs.amax(2).numel()
