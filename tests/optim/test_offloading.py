"""Optimisers with their states in host memory against the same ones without."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.optim.optimiser import Optimiser, build_optimiser
from drivetrain.recipe.schema import OptimizerParams, Recipe

_LARS = OptimizerParams(momentum=0.9, weight_decay=0.01, eeta=0.001, epsilon=0.0)
RECIPES = {
    "sgd": Recipe(optimizer_params=OptimizerParams(), weight_decay=0.01),
    "momentum": Recipe(optimizer_params=OptimizerParams(momentum=0.9), weight_decay=0.01),
    "adam": Recipe(optimizer="adam"),
    "adamw": Recipe(optimizer="adamw", weight_decay=0.01),
    "nesterov": Recipe(optimizer_params=OptimizerParams(momentum=0.9, nesterov=True)),
    "rmsprop": Recipe(optimizer="rmsprop", optimizer_params=OptimizerParams(momentum=0.5, centered=True)),
    "lars": Recipe(optimizer="lars", optimizer_params=_LARS),
}
NUM_STATES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "nesterov": 1, "rmsprop": 3, "lars": 1}
# Five chunks of at most 300 float32 elements, the largest parameter being longer than that.
CHUNK_BYTES = 1200


def _parameters(dtype: torch.dtype = torch.float32) -> FlatParameters:
    torch.manual_seed(0)
    return FlatParameters(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3), nn.Linear(20, 13)).to(dtype)
    )


def _offloaded(recipe: Recipe, parameters: FlatParameters, *, chunk_bytes: int | None) -> OffloadedOptimiser:
    return OffloadedOptimiser(
        partial(build_optimiser, recipe),
        values=parameters.values,
        segments=parameters.segments,
        chunk_bytes=chunk_bytes,
    )


def _run(optimiser: Optimiser, parameters: FlatParameters, *, first: int = 0, last: int = 4) -> Tensor:
    for update in range(first, last):
        generator = torch.Generator().manual_seed(update)
        for _, view in parameters.named_views(parameters.gradients):
            view.copy_(torch.randn(view.shape, generator=generator))
        optimiser.step(
            values=parameters.values,
            gradients=parameters.gradients,
            rate=torch.tensor(0.013, dtype=torch.float64),
            update=torch.tensor(update),
        )
    return parameters.values.clone()


def _bytes_on_device(offloaded: OffloadedOptimiser) -> int:
    return sum(buffer.nbytes for buffer in offloaded.buffers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chunk_bytes", [CHUNK_BYTES, 2**20, None])
@pytest.mark.parametrize("name", RECIPES)
def test_weights_and_states_have_the_same_bits(
    name: str, chunk_bytes: int | None, dtype: torch.dtype
) -> None:
    parameters, own = _parameters(dtype), _parameters(dtype)
    plain = build_optimiser(RECIPES[name], values=parameters.values, segments=parameters.segments)
    offloaded = _offloaded(RECIPES[name], own, chunk_bytes=chunk_bytes)
    before = parameters.values.clone()
    assert torch.equal(_run(plain, parameters), _run(offloaded, own))
    assert not torch.equal(before, own.values)
    assert list(plain.states) == list(offloaded.states)
    for state, expected in plain.states.items():
        assert torch.equal(expected, offloaded.states[state]), state


@pytest.mark.parametrize("name", RECIPES)
def test_the_device_holds_two_chunks_of_each_state(name: str) -> None:
    parameters = _parameters()
    offloaded = _offloaded(RECIPES[name], parameters, chunk_bytes=CHUNK_BYTES)
    largest = 16 * 8 * 3 * 3
    assert _bytes_on_device(offloaded) == 2 * NUM_STATES[name] * largest * 4
    for state in offloaded.states.values():
        assert state.device == torch.device("cpu")
        assert state.shape == parameters.values.shape


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_to_train_is_nothing_to_move(name: str) -> None:
    nothing = torch.zeros(0)
    offloaded = OffloadedOptimiser(partial(build_optimiser, RECIPES[name]), values=nothing, segments=[])
    offloaded.step(
        values=nothing, gradients=nothing, rate=torch.tensor(0.1, dtype=torch.float64), update=torch.tensor(0)
    )
    assert _bytes_on_device(offloaded) == 0


def test_a_small_model_gains_too() -> None:
    parameters = FlatParameters(nn.Sequential(*(nn.Linear(10, 10) for _ in range(32))))
    offloaded = _offloaded(RECIPES["adam"], parameters, chunk_bytes=None)
    assert _bytes_on_device(offloaded) <= 2 * parameters.values.nbytes // 8


@pytest.mark.parametrize("name", ["momentum", "adamw", "lars"])
def test_states_that_are_written_into_carry_on(name: str) -> None:
    whole, first_half, second_half = _parameters(), _parameters(), _parameters()
    expected = _run(_offloaded(RECIPES[name], whole, chunk_bytes=CHUNK_BYTES), whole)
    before = build_optimiser(RECIPES[name], values=first_half.values, segments=first_half.segments)
    second_half.values.copy_(_run(before, first_half, last=2))
    after = _offloaded(RECIPES[name], second_half, chunk_bytes=CHUNK_BYTES)
    for state, values in after.states.items():
        values.copy_(before.states[state])
    assert torch.equal(expected, _run(after, second_half, first=2))


def test_chunks_inside_a_parameter_would_change_what_lars_does() -> None:
    parameters, own = _parameters(), _parameters()
    plain = build_optimiser(RECIPES["lars"], values=parameters.values, segments=parameters.segments)
    whole = _run(plain, parameters, last=1)
    part = slice(0, 112)
    half = build_optimiser(RECIPES["lars"], values=own.values[part], segments=own.segments[:1])
    own.gradients.copy_(parameters.gradients)
    half.step(
        values=own.values[part],
        gradients=own.gradients[part],
        rate=torch.tensor(0.013, dtype=torch.float64),
        update=torch.tensor(0),
    )
    assert not torch.equal(whole[part], own.values[part])


@pytest.mark.accelerator
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", RECIPES)
def test_on_an_accelerator_the_states_stay_pinned_on_the_host(name: str) -> None:
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8))).cuda()
    parameters = FlatParameters(model)
    before = parameters.values.clone()
    plain = build_optimiser(RECIPES[name], values=parameters.values, segments=parameters.segments)
    offloaded = _offloaded(RECIPES[name], parameters, chunk_bytes=2 * 2**20)
    expected = _run(plain, parameters)
    parameters.values.copy_(before)
    found = _run(offloaded, parameters)
    assert torch.equal(expected, found)
    for state, values in offloaded.states.items():
        assert values.is_pinned()
        assert torch.equal(values, plain.states[state].cpu())
