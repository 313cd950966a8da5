"""The learning rate a recipe asks for, on the host and on the device."""

import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from drivetrain.core.errors import BadInputError
from drivetrain.optim.learning_rate import (
    Array,
    Curve,
    LearningRate,
    build_learning_rate,
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
from drivetrain.recipe.schema import Recipe

Evaluate: TypeAlias = Callable[[Curve, list[int]], list[float]]


def _rate(
    schedule: str = "const",
    params: dict[str, Any] | None = None,
    *,
    global_batch: int = 1,
    updates_per_epoch: Fraction | int = 10,
    total_updates: int = 100,
    **fields: Any,
) -> LearningRate:
    recipe = Recipe(lr_schedule=schedule, lr_schedule_params=params or {}, **fields)  # type: ignore[arg-type]
    return build_learning_rate(
        recipe,
        global_batch=global_batch,
        updates_per_epoch=Fraction(updates_per_epoch),
        total_updates=total_updates,
    )


@pytest.mark.parametrize("schedule", ["const", "cosine", "polynomial"])
def test_rate_per_sample_is_multiplied_by_the_global_batch(schedule: str) -> None:
    rate = _rate(schedule, {"initial_learning_rate": 0.0001}, global_batch=1024)
    assert rate.peak == rate.at(0) == 0.1024
    assert rate.peak_origin == "initial_learning_rate 0.0001 per sample x global batch 1024"


@pytest.mark.parametrize("schedule", ["const", "cosine", "polynomial", "exponential"])
def test_learning_rate_is_the_peak_itself(schedule: str) -> None:
    rate = _rate(schedule, learning_rate=0.25, global_batch=1024)
    assert rate.peak == rate.at(0) == 0.25
    assert rate.peak_origin == "--learning-rate 0.25"


def test_nothing_given_peaks_at_the_default() -> None:
    rate = _rate()
    assert (rate.peak, rate.at(99), rate.peak_origin) == (0.1, 0.1, "default 0.1")


def test_case_40_unknown_schedule() -> None:
    with pytest.raises(ValidationError, match="lr_schedule"):
        _rate("hygge")


def test_case_45_exponential_is_not_multiplied() -> None:
    params = {"initial_learning_rate": 0.0024, "decay_updates": 2100, "decay_rate": 0.9}
    rate = _rate("exponential", params, global_batch=24)
    rates = [rate.at(update) for update in (0, 1050, 2100)]
    assert rates == pytest.approx([0.0024, 0.00227684, 0.00216], abs=5e-9)
    assert rate.peak_origin == "initial_learning_rate 0.0024"


def test_exponential_defaults_to_one_factor_over_the_training() -> None:
    assert _rate("exponential", learning_rate=1.0).at(100) == 0.9


def test_cosine_defaults_to_the_whole_training() -> None:
    rate = _rate("cosine", learning_rate=1.0, total_updates=50)
    assert rate.at(25) == pytest.approx(0.5, abs=1e-15)
    assert rate.at(50) == 0.0


def test_cosine_epochs_become_whole_updates() -> None:
    rate = _rate("cosine", {"epochs_to_total_decay": 2.59}, learning_rate=1.0)
    assert rate.at(24) == pytest.approx(0.5 * (1 + math.cos(math.pi * 24 / 25)), abs=1e-15)
    assert rate.at(25) == 0.0


def test_cosine_shorter_than_an_update_is_an_error() -> None:
    with pytest.raises(BadInputError, match=r"epochs_to_total_decay 0\.05 .* use 0\.1 or more"):
        _rate("cosine", {"epochs_to_total_decay": 0.05})


def test_polynomial_keeps_the_fraction_of_an_update() -> None:
    params = {"epochs_to_total_decay": 2.55, "end_learning_rate_ratio": 0.1, "power": 2}
    rate = _rate("polynomial", params, learning_rate=2.0)
    assert rate.at(25) == pytest.approx(1.8 * (1 - 25 / 25.5) ** 2 + 0.2, abs=1e-15)
    assert rate.at(26) == 0.2


def test_polynomial_defaults() -> None:
    rate = _rate("polynomial", learning_rate=1.0)
    assert [rate.at(update) for update in (0, 100)] == [1.0, 0.0001]
    assert rate.at(50) == pytest.approx(0.50005, abs=1e-15)


STEPS = {"boundaries": [1, 2], "values": [0.4, 0.8, 0.2]}


def test_stepped_boundaries_are_epochs_and_values_are_used_as_they_are() -> None:
    rate = _rate("stepped", STEPS, global_batch=64)
    assert [rate.at(update) for update in (0, 10, 11, 20, 21)] == [0.4, 0.4, 0.8, 0.8, 0.2]
    assert (rate.peak, rate.peak_origin) == (0.8, "largest stepped value 0.8")


def test_stepped_values_are_scaled_to_the_learning_rate() -> None:
    rate = _rate("stepped", STEPS, learning_rate=0.08)
    assert [rate.at(update) for update in (0, 11, 21)] == pytest.approx([0.04, 0.08, 0.02], abs=1e-17)
    assert rate.peak == 0.08
    assert rate.peak_origin.startswith("--learning-rate 0.08")


@pytest.mark.parametrize(
    "params", [{}, {"values": [0.1]}, {"boundaries": [1]}, {"boundaries": [1], "values": [0.1]}]
)
def test_stepped_without_its_parameters_is_an_error(params: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="boundaries"):
        _rate("stepped", params)


def test_stepped_zeros_cannot_be_scaled() -> None:
    with pytest.raises(BadInputError, match="--learning-rate"):
        _rate("stepped", {"boundaries": [1], "values": [0, 0]}, learning_rate=0.1)


def test_warm_up_shift_moves_the_schedule() -> None:
    rate = _rate(
        "cosine", learning_rate=1.0, lr_warmup_params={"warmup_mode": "shift", "warmup_epochs": 1.55}
    )
    assert rate.at(0) == 1 / 16
    assert rate.at(14) == 15 / 16
    assert rate.at(15) == 1.0
    assert rate.at(15 + 85 / 2) == pytest.approx(0.5, abs=1e-15)
    assert rate.at(100) == 0.0


def test_warm_up_mask_covers_the_schedule() -> None:
    rate = _rate("cosine", learning_rate=1.0, lr_warmup_params={"warmup_mode": "mask", "warmup_epochs": 1})
    assert rate.at(4) == pytest.approx(0.5 * (1 + math.cos(math.pi * 4 / 100)) * 5 / 11, abs=1e-15)
    assert rate.at(50) == pytest.approx(0.5, abs=1e-15)


def test_staircase_wraps_the_warmed_up_schedule() -> None:
    fields: dict[str, Any] = {"learning_rate": 1.0, "lr_warmup_params": {"warmup_epochs": 2}}
    stairs, smooth = _rate("cosine", lr_staircase=True, **fields), _rate("cosine", **fields)
    assert [stairs.at(update) for update in range(100)] == [
        smooth.at(update // 10 * 10) for update in range(100)
    ]


def test_host_computes_many_updates_at_once() -> None:
    rate = _rate("cosine", learning_rate=1.0)
    updates = np.arange(0.0, 100.0)
    assert rate.over(updates).tolist() == [rate.at(update) for update in updates]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_device_keeps_the_counters_shape(dtype: torch.dtype) -> None:
    rate = _rate("stepped", STEPS)
    single = rate.on_device(torch.tensor(11, dtype=dtype))
    assert (single.shape, single.dtype, single.item()) == (torch.Size([]), torch.float64, 0.8)
    assert rate.on_device(torch.zeros(2, 3, dtype=dtype)).shape == (2, 3)


_PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "const": st.just({}),
    "cosine": st.fixed_dictionaries({}, optional={"epochs_to_total_decay": st.floats(0.5, 20)}),
    "stepped": st.just({"boundaries": [1, 2.5, 7], "values": [0.3, 0.2, 0.1, 0.05]}),
    "polynomial": st.fixed_dictionaries(
        {},
        optional={
            "epochs_to_total_decay": st.floats(0.1, 20),
            "end_learning_rate_ratio": st.floats(0, 1),
            "power": st.floats(0.5, 4),
        },
    ),
    "exponential": st.fixed_dictionaries(
        {}, optional={"decay_rate": st.floats(0.1, 1.5), "decay_updates": st.floats(1, 1000)}
    ),
}


_WARM_UP = st.none() | st.fixed_dictionaries(
    {"warmup_mode": st.sampled_from(["shift", "mask"]), "warmup_epochs": st.floats(0, 5)}
)


@st.composite
def _learning_rates(draw: st.DrawFn) -> LearningRate:
    schedule = draw(st.sampled_from(sorted(_PARAMS)))
    return _rate(
        schedule,
        draw(_PARAMS[schedule]),
        updates_per_epoch=Fraction(draw(st.integers(64, 5000)), draw(st.integers(1, 32))),
        total_updates=draw(st.integers(1, 2000)),
        learning_rate=draw(st.floats(1e-5, 2)),
        lr_warmup_params=draw(_WARM_UP),
        lr_staircase=draw(st.booleans()),
    )


@settings(deadline=None)
@given(rate=_learning_rates())
def test_host_and_device_agree(rate: LearningRate) -> None:
    updates = np.arange(0, 2000, 7)
    on_host = rate.over(updates.astype(np.float64))
    on_device = rate.on_device(torch.from_numpy(updates)).numpy()
    np.testing.assert_allclose(on_device, on_host, rtol=1e-12, atol=1e-12)


def test_planning_a_rate_needs_no_torch() -> None:
    code = "import sys, drivetrain.optim.learning_rate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
