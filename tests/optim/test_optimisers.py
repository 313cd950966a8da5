import pytest
import torch
from torch import Tensor

from drivetrain.optim.optimiser import build_optimiser
from drivetrain.optim.rules import Adam, Sgd
from drivetrain.program.gradient_rules import add_l2_
from drivetrain.recipe.schema import OptimizerParams, Recipe


def _rate(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def test_case_52_decoupled_decay_acts_without_a_gradient() -> None:
    weights = torch.ones(1)
    Sgd(weights, weight_decay=0.1).step(
        values=weights, gradients=torch.zeros(1), rate=_rate(1.0), update=torch.tensor(0)
    )
    assert weights.item() == pytest.approx(0.9, abs=1e-7)


def test_case_53_l2_acts_through_the_gradient() -> None:
    weights, gradients = torch.ones(1), torch.zeros(1)
    add_l2_(gradients, weights, factor=0.1)
    Sgd(weights).step(values=weights, gradients=gradients, rate=_rate(1.0), update=torch.tensor(0))
    assert weights.item() == pytest.approx(0.9, abs=1e-7)


def test_momentum_keeps_the_rate_inside_the_velocity() -> None:
    weights = torch.zeros(1, dtype=torch.float64)
    optimiser = Sgd(weights, momentum=0.5)
    gradient = torch.ones(1, dtype=torch.float64)
    expected_velocity, expected = 0.0, 0.0
    for update, rate in enumerate([0.1, 0.1, 0.01, 0.2]):
        optimiser.step(values=weights, gradients=gradient, rate=_rate(rate), update=torch.tensor(update))
        expected_velocity = 0.5 * expected_velocity - rate
        expected += expected_velocity
    assert weights.item() == pytest.approx(expected, rel=1e-14)


def test_sgd_at_a_constant_rate_equals_torch() -> None:
    ours, theirs = torch.ones(7, dtype=torch.float64), torch.ones(7, dtype=torch.float64).requires_grad_()
    optimiser = Sgd(ours, momentum=0.9)
    reference = torch.optim.SGD([theirs], lr=0.1, momentum=0.9)
    for update in range(5):
        gradient = torch.randn(7, generator=torch.Generator().manual_seed(update), dtype=torch.float64)
        optimiser.step(values=ours, gradients=gradient, rate=_rate(0.1), update=torch.tensor(update))
        theirs.grad = gradient.clone()
        reference.step()
    assert torch.allclose(ours, theirs.detach(), rtol=1e-12)


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_adam_equals_torch(weight_decay: float) -> None:
    ours, theirs = torch.ones(7, dtype=torch.float64), torch.ones(7, dtype=torch.float64).requires_grad_()
    optimiser = Adam(ours, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=weight_decay)
    reference = torch.optim.AdamW([theirs], lr=0.01, weight_decay=weight_decay)
    for update in range(10):
        gradient = torch.randn(7, generator=torch.Generator().manual_seed(update), dtype=torch.float64)
        optimiser.step(values=ours, gradients=gradient, rate=_rate(0.01), update=torch.tensor(update))
        theirs.grad = gradient.clone()
        reference.step()
    assert torch.allclose(ours, theirs.detach(), rtol=1e-10)


def test_recipes_choose_the_optimiser() -> None:
    values = torch.zeros(4)
    sgd = build_optimiser(Recipe(optimizer_params=OptimizerParams()), values=values, segments=())
    assert isinstance(sgd, Sgd)
    assert sgd.states == {}
    momentum = build_optimiser(
        Recipe(optimizer_params=OptimizerParams(momentum=0.9)), values=values, segments=()
    )
    assert list(momentum.states) == ["velocity"]
    params = OptimizerParams(beta1=0.8, epsilon=1e-4)
    adam = build_optimiser(Recipe(optimizer="adam", optimizer_params=params), values=values, segments=())
    assert isinstance(adam, Adam)
    assert (adam.beta1, adam.beta2, adam.epsilon) == (0.8, 0.999, 1e-4)
