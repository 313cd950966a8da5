"""Weights of 16 bits: wide arithmetic, rounding by draws that no cut changes, skipped steps, offloading."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.randomness import stream_key
from drivetrain.models.half_weights import halve_weights
from drivetrain.optim.flat_parameters import FlatParameters, Segment
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.optim.optimiser import build_optimiser
from drivetrain.optim.rounded import RoundedOptimiser
from drivetrain.optim.sgd import Sgd
from drivetrain.optim.stochastic_rounding import round_stochastically
from drivetrain.recipe.schema import Recipe

OPTIMISERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer_params": {"momentum": 0.9}, "weight_decay": 0.01},
    "adamw": {"optimizer_params": {}, "weight_decay": 0.01},
    "lars": {"optimizer_params": {"momentum": 0.9, "weight_decay": 0.1, "eeta": 0.1, "epsilon": 0}},
}
every_optimiser = pytest.mark.parametrize("name", OPTIMISERS)


def _recipe(name: str, **options: Any) -> Recipe:
    settings: dict[str, Any] = {"optimizer": name, "precision": "16.16", **OPTIMISERS[name], **options}
    return Recipe(**settings)


def _model(dtype: torch.dtype | None) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Conv2d(5, 7, 3), nn.Flatten(), nn.Linear(7, 11))
    if dtype is not None:
        halve_weights(model, dtype)
    return model


def _gradients(length: int, update: int) -> Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(update))


def _trained(
    flat: FlatParameters, recipe: Recipe, *, updates: int = 3, offloads: bool = False, skips: Any = None
) -> dict[str, Tensor]:
    build = partial(build_optimiser, recipe, skips=skips)
    optimiser = (
        OffloadedOptimiser(build, values=flat.values, segments=flat.segments, chunk_bytes=256)
        if offloads
        else build(values=flat.values, segments=flat.segments)
    )
    for update in range(updates):
        optimiser.step(
            values=flat.values,
            gradients=_by_element(flat.segments, update, like=flat.values),
            rate=torch.tensor(0.01, dtype=torch.float64),
            update=torch.tensor(update),
        )
    return {"values": flat.values, **optimiser.states}


def _by_element(segments: list[Segment], update: int, *, like: Tensor) -> Tensor:
    """The gradient of each parameter as the whole model has it, whatever part of it lies here."""
    whole = _gradients(4096, update)
    gradients = torch.zeros(len(like))
    for segment in segments:
        part = whole[segment.element : segment.element + segment.numel]
        gradients[segment.start : segment.start + segment.numel] = part
    return gradients


@every_optimiser
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_step_is_the_wide_one_rounded(name: str, dtype: torch.dtype) -> None:
    half = FlatParameters(_model(dtype))
    wide = FlatParameters(_model(dtype).float())
    found = _trained(half, _recipe(name), updates=1)
    expected = _trained(wide, _recipe(name), updates=1)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        stays_wide = key == "square"
        assert found[key].dtype == (torch.float32 if stays_wide else dtype)
        assert torch.equal(found[key], value.to(found[key].dtype))


@every_optimiser
def test_chunks_and_offloading_change_no_bit(name: str) -> None:
    recipe = _recipe(name, stochastic_rounding=True)
    expected = _trained(FlatParameters(_model(torch.bfloat16)), recipe)
    for found in (
        _trained(FlatParameters(_model(torch.bfloat16)), recipe, offloads=True),
        _in_small_chunks(FlatParameters(_model(torch.bfloat16)), recipe),
    ):
        assert all(torch.equal(found[key], expected[key]) for key in expected)


def _in_small_chunks(flat: FlatParameters, recipe: Recipe) -> dict[str, Tensor]:
    def build(*, values: Tensor, segments: Any) -> Any:
        return build_optimiser(recipe, values=values.float(), segments=segments)

    key = stream_key(recipe.seed, "stochastic rounding")
    optimiser = RoundedOptimiser(build, values=flat.values, segments=flat.segments, key=key, chunk_bytes=64)
    for update in range(3):
        gradients = _by_element(flat.segments, update, like=flat.values)
        rate = torch.tensor(0.01, dtype=torch.float64)
        optimiser.step(values=flat.values, gradients=gradients, rate=rate, update=torch.tensor(update))
    return {"values": flat.values, **optimiser.states}


def test_a_part_of_the_model_rounds_as_the_whole_does() -> None:
    recipe = _recipe("sgd", stochastic_rounding=True)
    whole = FlatParameters(_model(torch.bfloat16))
    _trained(whole, recipe)
    expected = dict(whole.named_views(whole.values))
    names = list(expected)
    # Consecutive ones as in a stage, and others with gaps between them.
    for only in (names[2:], names[:2], names[::2]):
        part = FlatParameters(_model(torch.bfloat16), only=set(only))
        _trained(part, recipe)
        found = dict(part.named_views(part.values))
        assert list(found) == only
        assert all(torch.equal(found[name], expected[name]) for name in only)


def test_draws_belong_to_seed_and_update() -> None:
    values = torch.full((4096,), 1.0)
    key = stream_key(5, "stochastic rounding")
    segment = Segment(name="w", shape=torch.Size((4096,)), start=0, element=0)
    moved = []
    for seed, update in ((5, 0), (5, 1), (6, 0)):
        weights = values.to(torch.bfloat16)
        recipe = _recipe("sgd", seed=seed, stochastic_rounding=True, optimizer_params={}, weight_decay=0)
        optimiser = build_optimiser(recipe, values=weights, segments=[segment])
        rate = torch.tensor(0.001)
        optimiser.step(values=weights, gradients=values, rate=rate, update=torch.tensor(update))
        moved.append(weights)
    drawn = round_stochastically(values - 0.001, dtype=torch.bfloat16, key=key, update=0)
    assert torch.equal(moved[0], drawn)
    assert not torch.equal(moved[0], moved[1])
    assert not torch.equal(moved[0], moved[2])


@every_optimiser
@pytest.mark.parametrize("dtype", [torch.float16, None], ids=str)
@pytest.mark.parametrize("offloads", [False, True])
def test_a_step_to_skip_changes_nothing_even_where_its_gradient_is_nan(
    name: str, dtype: torch.dtype | None, offloads: bool
) -> None:
    flat = FlatParameters(_model(dtype))
    skips = torch.tensor(False)
    build = partial(build_optimiser, _recipe(name), skips=skips)
    optimiser = (
        OffloadedOptimiser(build, values=flat.values, segments=flat.segments)
        if offloads
        else build(values=flat.values, segments=flat.segments)
    )
    rate = torch.tensor(0.1)

    def step(gradients: Tensor, update: int) -> list[Tensor]:
        optimiser.step(values=flat.values, gradients=gradients, rate=rate, update=torch.tensor(update))
        return [tensor.clone() for tensor in (flat.values, *optimiser.states.values())]

    good = _gradients(len(flat.values), 0)
    before = step(good, 0)
    skips.fill_(True)
    after = step(good * torch.nan, 1)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    skips.fill_(False)
    assert not torch.equal(step(good, 1)[0], before[0])


def test_plain_weights_have_the_plain_rule() -> None:
    flat = FlatParameters(_model(None))
    assert isinstance(build_optimiser(Recipe(), values=flat.values, segments=flat.segments), Sgd)
