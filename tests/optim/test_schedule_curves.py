"""The formulas of the schedules and their decorators against the worked cases."""

import math
from collections.abc import Callable
from fractions import Fraction
from types import ModuleType
from typing import TypeAlias

import numpy as np
import pytest
import torch

from drivetrain.optim.schedule_curves import (
    Array,
    Curve,
    constant,
    cosine,
    exponential,
    polynomial,
    scaled,
    staircase,
    stepped,
    warm_up_mask,
    warm_up_shift,
)

Evaluate: TypeAlias = Callable[[Curve, list[int]], list[float]]


def _rising(_xp: ModuleType, update: Array) -> Array:
    """The base of the decorators' cases: f(s) = 0.5 + s."""
    return 0.5 + update


def _host(curve: Curve, updates: list[int]) -> list[float]:
    return [float(curve(np, np.float64(update))) for update in updates]


def _device(curve: Curve, updates: list[int]) -> list[float]:
    rates: list[float] = curve(torch, torch.tensor(updates, dtype=torch.float64)).tolist()
    return rates


@pytest.fixture(params=[_host, _device], ids=["numpy", "torch"])
def rates(request: pytest.FixtureRequest) -> Evaluate:
    evaluate: Evaluate = request.param
    return evaluate


def test_case_34_stepped(rates: Evaluate) -> None:
    curve = stepped([0.1, 0.2, 0.3, 0.4], boundaries=[2, 5, 10])
    assert rates(curve, list(range(21))) == [0.1] * 3 + [0.2] * 3 + [0.3] * 5 + [0.4] * 10


def test_case_35_cosine(rates: Evaluate) -> None:
    curve = cosine(2.0, decay_updates=50)
    expected = [2 * 0.5 * (1 + math.cos(math.pi * update / 50)) for update in range(50)]
    assert rates(curve, list(range(50))) == pytest.approx(expected, abs=1e-12)
    assert rates(curve, [0, 10, 25, 40, 49]) == pytest.approx([2, 1.809017, 1, 0.190983, 0.001973], abs=1e-6)
    assert rates(curve, [50, 51, 1000]) == [0.0, 0.0, 0.0]


def test_case_36_warm_up_shift(rates: Evaluate) -> None:
    curve = warm_up_shift(_rising, updates=9)
    expected = [0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1.5]
    assert rates(curve, [0, 1, 2, 3, 4, 9, 10]) == pytest.approx(expected, abs=1e-15)


def test_case_37_warm_up_mask(rates: Evaluate) -> None:
    curve = warm_up_mask(_rising, updates=9)
    expected = [0.05, 0.3, 0.75, 2.25, 7.65, 9.5]
    assert rates(curve, [0, 1, 2, 4, 8, 9]) == pytest.approx(expected, abs=1e-15)


def test_case_38_staircase(rates: Evaluate) -> None:
    curve = staircase(_rising, updates_per_epoch=Fraction(2))
    assert rates(curve, list(range(10))) == [0.5, 0.5, 2.5, 2.5, 4.5, 4.5, 6.5, 6.5, 8.5, 8.5]


def test_staircase_of_epochs_that_end_inside_an_update(rates: Evaluate) -> None:
    curve = staircase(_rising, updates_per_epoch=Fraction(3, 2))
    assert rates(curve, list(range(7))) == [0.5, 0.5, 2.0, 3.5, 3.5, 5.0, 6.5]


def test_staircase_finds_every_epoch_exactly(rates: Evaluate) -> None:
    per_epoch = Fraction(1437, 64)
    curve = staircase(lambda _xp, update: update, updates_per_epoch=per_epoch)
    updates = list(range(5000))
    assert rates(curve, updates) == [float(update // per_epoch * per_epoch) for update in updates]


def test_case_39_scaled_constant(rates: Evaluate) -> None:
    assert rates(scaled(constant(2.0), factor=10.0), [0, 7]) == [20.0, 20.0]


def test_case_45_exponential(rates: Evaluate) -> None:
    curve = exponential(0.0024, decay_rate=0.9, decay_updates=2100)
    expected = [0.0024, 0.00237485, 0.00227684, 0.00216011, 0.00216]
    assert rates(curve, [0, 210, 1050, 2099, 2100]) == pytest.approx(expected, abs=5e-9)


def test_polynomial(rates: Evaluate) -> None:
    curve = polynomial(2.0, end=0.5, decay_updates=10.0, power=2.0)
    expected = [2.0, 1.5 * 0.9**2 + 0.5, 1.5 * 0.25 + 0.5, 0.5, 0.5]
    assert rates(curve, [0, 1, 5, 10, 100]) == pytest.approx(expected, abs=1e-15)


def test_warm_up_of_no_updates_changes_nothing(rates: Evaluate) -> None:
    updates = list(range(5))
    assert rates(warm_up_shift(_rising, updates=0), updates) == rates(_rising, updates)
    assert rates(warm_up_mask(_rising, updates=0), updates) == rates(_rising, updates)
