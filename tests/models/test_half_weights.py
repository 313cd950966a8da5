"""16-bit weights of a model, and what stays wide."""

import pytest
import torch
from torch import nn

from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.models.freeze import freeze_parameters
from drivetrain.models.half_weights import halve_weights, round_weights, widen_weights, widened
from drivetrain.program.averaging import WeightAverage


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))


def test_parameters_are_halved_and_statistics_are_not() -> None:
    model = _model()
    halve_weights(model, torch.float16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float16}
    assert model[1].running_mean.dtype == torch.float32
    exact = {name: value.float() for name, value in model.state_dict().items()}
    widen_weights(model)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(torch.equal(value, exact[name]) for name, value in model.state_dict().items())


def test_rounded_weights_are_wide_numbers_of_few_bits() -> None:
    halved, rounded = _model(), _model()
    halve_weights(halved, torch.bfloat16)
    round_weights(rounded, torch.bfloat16)
    widen_weights(halved)
    assert all(torch.equal(a, b) for a, b in zip(halved.parameters(), rounded.parameters(), strict=True))


def test_only_half_tensors_are_widened() -> None:
    assert widened(torch.zeros(1, dtype=torch.bfloat16)).dtype == torch.float32
    double = torch.zeros(1, dtype=torch.float64)
    assert widened(double) is double


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_batch_norm_keeps_wide_statistics_beside_half_weights(dtype: torch.dtype, frozen: bool) -> None:
    model = _model()
    if frozen:
        freeze_parameters(model, ["1"])
    halve_weights(model, dtype)
    owner = install_batch_norm_owner(model, kept_share=0.9)
    images = torch.randn(4, 1, 5, 5)
    for training in (True, False):
        model.train(training)
        with torch.autocast("cpu", dtype=dtype):
            output = model(images)
        assert output.dtype == dtype
    owner.commit()
    assert model[1].running_mean.dtype == torch.float32
    assert bool(model[1].running_mean.any()) is not frozen  # type: ignore[operator]


def test_the_average_of_half_weights_has_all_its_bits_through_a_look() -> None:
    weights = torch.full((8,), 1.0, dtype=torch.bfloat16)
    average = WeightAverage([weights], kept_share=0.999)
    weights.fill_(2.0)
    for update in range(5):
        average.move(torch.tensor(1000 + update), wide_dtype=torch.float64)
    exact = average.averages[0].clone()
    assert exact.dtype == torch.float32
    assert not torch.equal(exact, exact.bfloat16().float())
    with average.in_place():
        assert torch.equal(weights, exact.bfloat16())
    assert torch.equal(average.averages[0], exact)
    assert torch.equal(weights, torch.full((8,), 2.0, dtype=torch.bfloat16))
    with average.in_place():
        weights[0] = 3.0
    assert average.averages[0][0] == 3.0
    assert torch.equal(average.averages[0][1:], exact[1:])
