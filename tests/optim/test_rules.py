"""LARS against its formula, parameter by parameter, and the rules of its options."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.optimiser import build_optimiser
from drivetrain.optim.rules import Lars
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import OptimizerParams, Recipe

PARAMS: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.01, "eeta": 0.001, "epsilon": 0.0}


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(20, 3, bias=True)
    ).double()


def expected_step(
    weight: Tensor, gradient: Tensor, velocity: Tensor, *, rate: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The rule for one parameter, as it is written down."""
    trust, change = 1.0, gradient
    if weight.ndim > 1:
        weight_norm, gradient_norm = float(weight.norm()), float(gradient.norm())
        if weight_norm > 0 and gradient_norm > 0:
            trust = 0.001 * weight_norm / (gradient_norm + 0.01 * weight_norm + epsilon)
        change = gradient + 0.01 * weight
    velocity = 0.9 * velocity - rate * trust * change
    return weight + velocity, velocity


def run_both(rates: list[float], *, epsilon: float, zeroed: str = "") -> None:
    parameters = FlatParameters(small_network())
    optimiser = Lars(parameters.values, segments=parameters.segments, **{**PARAMS, "epsilon": epsilon})
    weights = {name: view.clone() for name, view in parameters.named_views(parameters.values)}
    velocities = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for update, rate in enumerate(rates):
        generator = torch.Generator().manual_seed(update)
        for name, gradient in parameters.named_views(parameters.gradients):
            gradient.copy_(torch.randn(gradient.shape, generator=generator, dtype=torch.float64))
            if name == zeroed:
                gradient.zero_()
            weights[name], velocities[name] = expected_step(
                weights[name], gradient, velocities[name], rate=rate, epsilon=epsilon or 1e-7
            )
        optimiser.step(
            values=parameters.values,
            gradients=parameters.gradients,
            rate=torch.tensor(rate, dtype=torch.float64),
            update=torch.tensor(update),
        )
    for name, value in parameters.named_views(parameters.values):
        assert torch.allclose(value, weights[name], rtol=1e-12, atol=0), name


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_every_parameter_follows_the_formula(epsilon: float) -> None:
    run_both([1.0, 1.0, 0.25, 2.0], epsilon=epsilon)


def test_without_a_gradient_the_trust_is_one() -> None:
    run_both([1.0, 0.5], epsilon=0.0, zeroed="0.weight")


def test_gradients_and_the_space_between_parameters_stay_as_they_are() -> None:
    parameters = FlatParameters(small_network())
    parameters.gradients.normal_()
    covered = torch.zeros_like(parameters.values, dtype=torch.bool)
    for _, view in parameters.named_views(covered):
        view.fill_(True)
    parameters.gradients.mul_(covered)
    before = parameters.gradients.clone()
    Lars(parameters.values, segments=parameters.segments, **PARAMS).step(
        values=parameters.values,
        gradients=parameters.gradients,
        rate=torch.tensor(1.0, dtype=torch.float64),
        update=torch.tensor(0),
    )
    assert torch.equal(parameters.gradients, before)
    assert not covered.all()
    assert not parameters.values[~covered].any()


def test_biases_and_scales_move_as_with_plain_momentum() -> None:
    parameters = FlatParameters(small_network())
    names = dict(parameters.named_views(parameters.values))
    before = {name: value.clone() for name, value in names.items()}
    parameters.gradients.fill_(1.0)
    Lars(parameters.values, segments=parameters.segments, **PARAMS).step(
        values=parameters.values,
        gradients=parameters.gradients,
        rate=torch.tensor(0.5, dtype=torch.float64),
        update=torch.tensor(0),
    )
    for name in ("0.bias", "1.weight", "1.bias", "3.bias"):
        assert torch.equal(names[name], before[name] - 0.5), name
    assert float((names["3.weight"] - before["3.weight"]).abs().max()) < 0.5 * 0.01


def test_a_recipe_builds_it() -> None:
    parameters = FlatParameters(small_network())
    recipe = Recipe(optimizer="lars", optimizer_params=OptimizerParams(**PARAMS))
    optimiser = build_optimiser(recipe, values=parameters.values, segments=parameters.segments)
    assert isinstance(optimiser, Lars)
    assert (optimiser.momentum, optimiser.weight_decay, optimiser.eeta) == (0.9, 0.01, 0.001)
    assert optimiser.epsilon == 1e-7
    assert list(optimiser.states) == ["velocity"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "--optimizer lars needs momentum, weight_decay, eeta, epsilon in --optimizer-params; "),
    ({"optimizer_params": {"momentum": 0.9, "eeta": 1}}, "needs weight_decay, epsilon in --optimizer-params"),
    (
        {"optimizer_params": PARAMS, "weight_decay": 0.1},
        "--weight-decay 0.1 is decoupled weight decay, which --optimizer lars does not have; "
        "set weight_decay in --optimizer-params instead.",
    ),
    ({"optimizer_params": {**PARAMS, "beta1": 0.5}}, "beta1 in --optimizer-params"),
    ({"optimizer": "sgd", "optimizer_params": PARAMS}, "does not belong to --optimizer sgd"),
    ({"optimizer": "adamw", "optimizer_params": {"epsilon": 0}}, "epsilon of --optimizer-params is 0"),
]


@pytest.mark.parametrize(("overrides", "part"), REFUSED)
def test_options_that_do_not_fit(overrides: dict[str, Any], part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        resolve_recipe(overrides={"optimizer": "lars", **overrides})
    assert part in str(caught.value)


def test_another_optimiser_takes_over_what_means_the_same() -> None:
    sgd = resolve_recipe(config="resnet8_test_lars", overrides={"optimizer": "sgd"}).recipe
    assert sgd.optimizer_params == OptimizerParams(momentum=0.9)
    adam = resolve_recipe(config="resnet8_test_lars", overrides={"optimizer": "adam"}).recipe
    assert adam.optimizer_params == OptimizerParams()
