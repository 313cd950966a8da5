"""Weights of 16 bits: wide arithmetic, rounding by draws that no cut changes, skipped steps, offloading."""

import math
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
from drivetrain.optim.rounded import RoundedOptimiser, round_stochastically
from drivetrain.optim.rules import Sgd
from drivetrain.recipe.schema import Recipe

OPTIMISERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer_params": {"momentum": 0.9}, "weight_decay": 0.01},
    "adamw": {"optimizer_params": {}, "weight_decay": 0.01},
    "lars": {"optimizer_params": {"momentum": 0.9, "weight_decay": 0.1, "eeta": 0.1, "epsilon": 0}},
}
every_optimiser = pytest.mark.parametrize("name", OPTIMISERS)
KEY = stream_key(42, "stochastic rounding")
ROUNDINGS = 10_000
HALF_TYPES = (torch.float16, torch.bfloat16)
WIDE_TYPES = (torch.float32, torch.float64)
both_halves = pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
both_wide = pytest.mark.parametrize("wide", WIDE_TYPES, ids=str)


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


def _round(values: Tensor, dtype: torch.dtype, *, update: int | Tensor = 7, first_element: int = 0) -> Tensor:
    return round_stochastically(values, dtype=dtype, key=KEY, update=update, first_element=first_element)


def _neighbours(value: float, dtype: torch.dtype) -> tuple[float, float]:
    """The 16-bit numbers at and around a value, found by torch's own casts."""
    near = torch.tensor(value, dtype=torch.float64).to(dtype)
    if near.double().item() == value:
        return value, value
    bits = near.view(torch.int16)
    around = [near, (bits + 1).view(dtype), (bits - 1).view(dtype)]
    numbers = [0.0 if number.isnan() else number.double().item() for number in around]
    return max(n for n in numbers if n < value), min(n for n in numbers if n > value)


@both_halves
@both_wide
@pytest.mark.parametrize(
    "value", [1000.001, 1.0 / 3.0, -0.7, 3.3e-3, -60000.5, 1.5e-5, -3e-7, 2.5e-8, 1e-39, -2e-40]
)
def test_the_mean_of_many_roundings_is_the_value(value: float, wide: torch.dtype, dtype: torch.dtype) -> None:
    values = torch.full((ROUNDINGS,), value, dtype=wide)
    exact = values[0].double().item()
    low, high = _neighbours(exact, dtype)
    rounded = _round(values, dtype).double()
    assert set(rounded.tolist()) <= {low, high}
    share = (exact - low) / (high - low) if high > low else 0.0
    deviation = (high - low) * math.sqrt(share * (1 - share) / ROUNDINGS)
    assert abs(rounded.mean().item() - exact) <= 3 * deviation + (high - low) * 2.0**-24


@both_halves
def test_a_plain_cast_fails_the_same_check(dtype: torch.dtype) -> None:
    """What the check of the mean must catch: the nearest number, always."""
    plain = torch.full((ROUNDINGS,), 1000.001).to(dtype).double()
    assert abs(plain.mean().item() - 1000.001) > 5e-4


@both_halves
@both_wide
def test_never_more_than_one_step_away(wide: torch.dtype, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    scales = torch.randint(-30, 15, (20_000,), generator=generator)
    values = torch.randn(20_000, dtype=wide, generator=generator) * 2.0**scales
    values = values[values.abs() < 65000]
    rounded = _round(values, dtype)
    nearest = values.to(dtype)
    steps = (rounded.view(torch.int16).int() - nearest.view(torch.int16).int()).abs()
    same_sign = rounded.signbit() == values.signbit()
    assert same_sign.all()
    assert steps.max() == 1
    off_the_grid = nearest.to(wide) != values
    assert torch.equal(rounded[~off_the_grid], nearest[~off_the_grid])


@both_halves
@both_wide
def test_numbers_of_the_type_keep_their_bits(wide: torch.dtype, dtype: torch.dtype) -> None:
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    numbers = every[~every.isnan()]
    rounded = _round(numbers.to(wide), dtype)
    assert torch.equal(rounded.view(torch.int16), numbers.view(torch.int16))
    assert _round(every[every.isnan()].to(wide), dtype).isnan().all()


@both_halves
@both_wide
def test_beyond_the_largest_number_the_plain_rule_holds(wide: torch.dtype, dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    step = largest - torch.tensor(largest, dtype=dtype).view(torch.int16).sub(1).view(dtype).double().item()
    for beyond, expected in ((0.0, largest), (0.25, largest), (0.75, math.inf), (0.5, math.inf)):
        values = torch.full((1000,), largest + beyond * step, dtype=wide)
        for sign in (1.0, -1.0):
            assert set(_round(sign * values, dtype).tolist()) == {sign * expected}
    assert _round(torch.tensor([1e38, math.inf, -math.inf], dtype=wide), torch.float16).isinf().all()


def test_less_than_the_smallest_number_is_still_a_share_of_it() -> None:
    smallest = torch.finfo(torch.float16).smallest_normal * torch.finfo(torch.float16).eps
    rounded = _round(torch.full((1 << 16,), smallest / 1024), torch.float16)
    assert set(rounded.double().tolist()) == {0.0, smallest}
    assert 40 < (rounded != 0).sum().item() < 90


@both_halves
@both_wide
def test_the_cut_never_changes_the_bits(wide: torch.dtype, dtype: torch.dtype) -> None:
    values = torch.randn(1003, dtype=wide, generator=torch.Generator().manual_seed(0))
    whole = _round(values, dtype)
    for sizes in ([1, 2, 1000], [500, 503], [5, 7, 11, 980]):
        first, parts = 0, []
        for size in sizes:
            parts.append(_round(values[first : first + size], dtype, first_element=first))
            first += size
        assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(torch.cat([_round(values[:500], dtype), _round(values[500:], dtype)]), whole)


@both_halves
def test_the_draw_belongs_to_key_update_and_element(dtype: torch.dtype) -> None:
    values = torch.full((4096,), 1.0 / 3.0)
    first = _round(values, dtype)
    assert torch.equal(_round(values, dtype), first)
    assert torch.equal(_round(values, dtype, update=torch.tensor(7)), first)
    assert torch.equal(_round(values.view(64, 64), dtype).view(-1), first)
    others = [
        _round(values, dtype, update=8),
        round_stochastically(values, dtype=dtype, key=stream_key(43, "stochastic rounding"), update=7),
        _round(values, dtype, first_element=4096),
    ]
    for other in others:
        agreement = (other == first).float().mean().item()
        assert 0.4 < agreement < 0.7


def test_elements_count_row_by_row_in_any_memory_layout() -> None:
    values = torch.randn(2, 8, 5, 5, generator=torch.Generator().manual_seed(1))
    for dtype in HALF_TYPES:
        rounded = _round(values.to(memory_format=torch.channels_last), dtype)
        assert torch.equal(rounded, _round(values, dtype))


def test_what_is_rounded_stays_as_it_was() -> None:
    values = torch.randn(100, generator=torch.Generator().manual_seed(2))
    before = values.clone()
    _round(values, torch.bfloat16, update=1)
    assert torch.equal(values, before)


def test_updates_below_half_a_step_are_not_lost() -> None:
    """250 updates of 0.001 to a float16 weight of 1000: lost by plain sums, kept on average by draws."""
    plain = torch.full((1024,), 1000.0, dtype=torch.float16)
    drawn, delta = plain.clone(), torch.full((1024,), -0.01 * 0.1)
    for update in range(250):
        plain.copy_(plain + delta)
        drawn = _round(drawn + delta, torch.float16, update=update)
    assert (plain == 1000).all()
    moved = drawn.double() - 1000
    assert (moved != 0).any()
    per_update = torch.tensor(1000.0) + delta[0] - 1000
    deviation = 0.5 * math.sqrt(250 * 0.002 * 0.998 / 1024)
    assert abs(moved.mean().item() - 250 * per_update.item()) < 3 * deviation


@both_halves
def test_one_program_serves_all_updates(dtype: torch.dtype) -> None:
    """A trace that reads the update from a tensor, with no number of the data in it."""
    values = torch.randn(64, generator=torch.Generator().manual_seed(4))
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda v, u: _round(v, dtype, update=u))(
        values, torch.tensor(3)
    )
    assert not any("_local_scalar_dense" in str(node.target) for node in traced.graph.nodes)
    for update in (3, 4, 99):
        expected = _round(values, dtype, update=update)
        assert torch.equal(traced(values, torch.tensor(update)), expected)
