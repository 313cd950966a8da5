"""Rounding by a draw: no bias, one step at most, the same bits in any cut, and every odd number."""

import math

import pytest
import torch
from torch import Tensor

from drivetrain.core.randomness import stream_key
from drivetrain.optim.stochastic_rounding import round_stochastically

KEY = stream_key(42, "stochastic rounding")
ROUNDINGS = 10_000
HALF_TYPES = (torch.float16, torch.bfloat16)
WIDE_TYPES = (torch.float32, torch.float64)
both_halves = pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
both_wide = pytest.mark.parametrize("wide", WIDE_TYPES, ids=str)


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
