"""Parts with rates of their own against the plain optimiser on each part alone."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.optim.chunks import segments_inside
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.optim.optimiser import Optimiser, build_optimiser
from drivetrain.optim.part_rates import PartedOptimiser, PartRate, hold_back_, parts_of
from drivetrain.recipe.schema import OptimizerParams, Recipe

_LARS = OptimizerParams(momentum=0.9, weight_decay=0.01, eeta=0.001, epsilon=0.0)
RECIPES = {
    "sgd": Recipe(optimizer_params=OptimizerParams(), weight_decay=0.01),
    "momentum": Recipe(optimizer_params=OptimizerParams(momentum=0.9), weight_decay=0.01),
    "adam": Recipe(optimizer="adam"),
    "adamw": Recipe(optimizer="adamw", weight_decay=0.01),
    "lars": Recipe(optimizer="lars", optimizer_params=_LARS),
}
RATES = {"0.weight": PartRate(factor=0.25), "0.bias": PartRate(factor=0.25), "1.weight": PartRate(factor=0.5)}
WAITING = {name: PartRate(factor=0.5, first=2) for name in ("0.weight", "0.bias")}
every_optimiser = pytest.mark.parametrize("name", RECIPES)


def _parameters(dtype: torch.dtype = torch.float32) -> FlatParameters:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3), nn.Linear(20, 13))
    return FlatParameters(nn.Sequential(*layers).to(dtype))


def _step(
    optimiser: Optimiser, update: int, *, values: Tensor, gradients: Tensor, rate: float = 0.013
) -> None:
    optimiser.step(
        values=values,
        gradients=gradients,
        rate=torch.tensor(rate, dtype=torch.float64),
        update=torch.tensor(update),
    )


def _gradients(like: Tensor, update: int) -> Tensor:
    return torch.randn(len(like), generator=torch.Generator().manual_seed(update)).to(like.dtype)


def _trained(
    name: str, rates: dict[str, PartRate] | None, *, updates: int = 4, offloads: bool = False, **options: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    own = _parameters(options.pop("dtype", torch.float32))
    recipe = RECIPES[name].model_copy(update=options)
    build = partial(build_optimiser, recipe, rates=rates)
    optimiser = (
        OffloadedOptimiser(build, values=own.values, segments=own.segments, chunk_bytes=1200)
        if offloads
        else build(values=own.values, segments=own.segments)
    )
    waiting = parts_of(own.segments, rates or {}, end=len(own.values))
    for update in range(updates):
        gradients = _gradients(own.values, update).float()
        hold_back_(gradients, parts=waiting, update=torch.tensor(update))
        _step(optimiser, update, values=own.values, gradients=gradients)
    return own.values.clone(), {key: state.clone() for key, state in optimiser.states.items()}


@every_optimiser
def test_each_part_is_updated_as_by_the_plain_optimiser_at_its_own_rate(name: str) -> None:
    values, states = _trained(name, RATES)
    alone = _parameters()
    parts = parts_of(alone.segments, RATES, end=len(alone.values))
    assert [rate.factor for _, rate in parts] == [0.25, 0.5, 1.0]
    for place, rate in parts:
        part = alone.values[place]
        plain = build_optimiser(RECIPES[name], values=part, segments=segments_inside(alone.segments, place))
        for update in range(4):
            gradients = _gradients(alone.values, update)[place]
            _step(plain, update, values=part, gradients=gradients, rate=0.013 * rate.factor)
        assert torch.equal(values[place], part)
        assert all(torch.equal(states[key][place], state) for key, state in plain.states.items())
    assert not torch.equal(values, _trained(name, None)[0])


@pytest.mark.parametrize("kind", ["momentum", "adamw"])
def test_the_groups_of_torch_do_the_same(kind: str) -> None:
    own = _parameters(torch.float64)
    places = parts_of(own.segments, RATES, end=len(own.values))
    theirs = [nn.Parameter(own.values[place].clone()) for place, _ in places]
    groups = [
        {"params": [part], "lr": 0.013 * rate.factor} for part, (_, rate) in zip(theirs, places, strict=True)
    ]
    reference: torch.optim.Optimizer
    if kind == "momentum":
        reference = torch.optim.SGD(groups, momentum=0.9)
    else:
        reference = torch.optim.AdamW(groups, weight_decay=0.01)
    recipe = RECIPES[kind].model_copy(update={} if kind == "adamw" else {"weight_decay": 0.0})
    optimiser = build_optimiser(recipe, values=own.values, segments=own.segments, rates=RATES)
    for update in range(4):
        gradients = _gradients(own.values, update)
        _step(optimiser, update, values=own.values, gradients=gradients)
        for part, (place, _) in zip(theirs, places, strict=True):
            part.grad = gradients[place].clone()
        reference.step()
    for part, (place, _) in zip(theirs, places, strict=True):
        assert torch.allclose(own.values[place], part.detach(), rtol=1e-10)


@every_optimiser
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_offloading_changes_no_bit(name: str, dtype: torch.dtype) -> None:
    options: dict[str, Any] = {"dtype": dtype, "stochastic_rounding": dtype == torch.bfloat16}
    expected, states = _trained(name, RATES, **options)
    found, offloaded = _trained(name, RATES, offloads=True, **options)
    assert torch.equal(found, expected)
    assert all(torch.equal(offloaded[key], state) for key, state in states.items())


@every_optimiser
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_factor_of_zero_changes_no_bit_of_the_weights(name: str, dtype: torch.dtype) -> None:
    still = {"0.weight": PartRate(factor=0.0), "0.bias": PartRate(factor=0.0)}
    before = _parameters(dtype)
    place, _ = parts_of(before.segments, still, end=len(before.values))[0]
    after, _ = _trained(name, still, dtype=dtype, stochastic_rounding=dtype == torch.bfloat16)
    assert torch.equal(after[place], before.values[place])
    assert not torch.equal(after[place.stop :], before.values[place.stop :])


@every_optimiser
def test_a_part_that_waits_begins_as_if_the_training_began(name: str) -> None:
    before = _parameters()
    place, rate = parts_of(before.segments, WAITING, end=len(before.values))[0]
    values, states = _trained(name, WAITING, updates=2)
    assert torch.equal(values[place], before.values[place])
    assert all(not state[place].any() for state in states.values())
    fresh = build_optimiser(
        RECIPES[name],
        values=before.values[place],
        segments=segments_inside(before.segments, place),
    )
    for update in (2, 3):
        gradients = _gradients(before.values, update)[place]
        began = update - rate.first
        _step(fresh, began, values=before.values[place], gradients=gradients, rate=0.0065)
    assert torch.equal(_trained(name, WAITING)[0][place], before.values[place])


def test_a_rank_whose_stages_are_frozen_has_no_parts() -> None:
    nothing = torch.zeros(0)
    assert parts_of((), RATES, end=0) == []
    optimiser = build_optimiser(RECIPES["adamw"], values=nothing, segments=(), rates=RATES)
    _step(optimiser, 0, values=nothing, gradients=nothing)


def test_a_gradient_that_waits_is_zero_even_where_it_is_nan() -> None:
    own = _parameters()
    parts = parts_of(own.segments, WAITING, end=len(own.values))
    waiting, others = parts[0][0], parts[1][0]
    gradients = torch.full_like(own.values, float("nan"))
    hold_back_(gradients, parts=parts, update=torch.tensor(1))
    assert not gradients[waiting].any()
    assert gradients[others].isnan().all()
    gradients[waiting] = 1.0
    hold_back_(gradients, parts=parts, update=torch.tensor(2))
    assert bool((gradients[waiting] == 1).all())


@every_optimiser
def test_it_takes_no_memory_and_nothing_is_wrapped_if_all_train_alike(name: str) -> None:
    own = _parameters()
    plain = build_optimiser(RECIPES[name], values=own.values, segments=own.segments, rates={})
    assert not isinstance(plain, PartedOptimiser)
    parted = build_optimiser(RECIPES[name], values=own.values, segments=own.segments, rates=RATES)
    assert isinstance(parted, PartedOptimiser)
    sizes = [sum(state.nbytes for state in each.states.values()) for each in (plain, parted)]
    assert sizes[0] == sizes[1]
