"""The comparison: what it lets pass, and what it notices."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivetrain.verify.compare import (
    TOLERANCES,
    Difference,
    compare,
    longest_tensor,
    own_rounding,
    worst_tensor,
)
from drivetrain.verify.measure import DtypeName, Measurement, Step

DTYPES: tuple[DtypeName, ...] = ("float32", "float64")


def _measurement(dtype: DtypeName = "float64", *, updates: int = 10) -> Measurement:
    generator = np.random.default_rng(0)
    shapes = {"first.weight": (4, 3), "first.bias": (4,), "last.weight": (2, 4)}
    tensors = {name: generator.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    step = Step(
        gradients=tensors,
        statistics={"norm.running_mean": tensors["first.bias"]},
        counts={"norm.num_batches": np.array(3), "is_warm": np.array([True, False])},
        weights=tensors,
        optimiser={"momentum/first.weight": tensors["first.weight"]},
    )
    return Measurement(steps=(step, step), losses=np.linspace(2.0, 1.0, updates), draws_from_torch=False)


def _with(measured: Measurement, *, step: int = 0, **changes: Any) -> Measurement:
    """The measurement with another first or last step."""
    steps = list(measured.steps)
    steps[step] = replace(steps[step], **changes)
    return replace(measured, steps=tuple(steps))


def _compared(found: Measurement, dtype: DtypeName = "float64") -> Difference:
    expected = _measurement(dtype, updates=len(found.losses))
    return compare(expected, found, tolerance=TOLERANCES[dtype])


def _with_gradient(name: str, factor: float, dtype: DtypeName = "float64", *, step: int = 0) -> Measurement:
    measured = _measurement(dtype)
    gradients = measured.steps[0].gradients
    return _with(measured, step=step, gradients={**gradients, name: gradients[name] * factor})


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_measurements_differ_by_nothing(dtype: DtypeName) -> None:
    difference = _compared(_measurement(dtype), dtype)
    assert difference.ok
    assert (difference.gradients.error, difference.loss, difference.weights.error) == (0, 0, 0)


@pytest.mark.parametrize("step", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gradient_a_thousandth_too_long_is_noticed_and_named(dtype: DtypeName, step: int) -> None:
    difference = _compared(_with_gradient("first.bias", 1.001, dtype, step=step), dtype)
    assert not difference.ok
    assert difference.gradients.name == "first.bias"
    assert difference.failures[0].startswith("the gradient of first.bias differs by 9.8e-04 (")


def test_the_bound_is_that_of_the_promise() -> None:
    """||g - g'|| <= tolerance ||g|| + tolerance / 100 ||all||, neither more nor less."""
    expected = {"large": np.array([3.0, 4.0]), "none": np.zeros(2)}
    at_most = 1e-5 * 0.01 * 5.0
    assert worst_tensor(expected, {**expected, "none": np.array([at_most * 0.999, 0.0])}).error < 1e-5
    assert worst_tensor(expected, {**expected, "none": np.array([at_most * 1.001, 0.0])}).error > 1e-5


@pytest.mark.parametrize(("step", "is_equal"), [(0.9e-10, True), (1.2e-10, False)])
def test_rounding_passes_and_more_does_not(step: float, is_equal: bool) -> None:
    assert _compared(_with_gradient("last.weight", 1 + step)).ok is is_equal


@pytest.mark.parametrize(("error", "is_equal"), [(1e-9, True), (5e-8, False)])
def test_losses_are_compared(error: float, is_equal: bool) -> None:
    measured = _measurement()
    difference = _compared(replace(measured, losses=measured.losses + error))
    assert difference.ok is is_equal


def test_the_losses_of_all_updates_count() -> None:
    measured = _measurement("float32", updates=12)
    late = replace(measured, losses=measured.losses + np.where(np.arange(12) < 11, 0.0, 1e-3))
    assert not _compared(late, "float32").ok


def test_statistics_weights_and_ranks_count() -> None:
    measured = _measurement()
    step = measured.steps[1]
    moved = _with(measured, step=1, statistics={name: 1.01 * v for name, v in step.statistics.items()})
    assert _compared(moved).failures[0].startswith("the running statistics norm.running_mean differs by ")
    state = {name: 0.999 * v for name, v in step.optimiser.items()}
    forgot = _compared(_with(measured, step=1, optimiser=state))
    assert forgot.failures[0].startswith("the optimizer state momentum/first.weight differs by ")
    wrong = _with(measured, step=1, weights={**step.weights, "first.bias": step.weights["first.bias"] * 1.01})
    assert _compared(wrong).failures[0].startswith("the updated first.bias differs by ")
    apart = compare(measured, measured, tolerance=TOLERANCES["float64"], ranks_agree=False)
    assert apart.failures == ["the ranks ended with different weights or statistics"]


@pytest.mark.parametrize(("rounding", "tensor"), [(1e-7, 1e-5), (1e-5, 4e-5), (1e-3, 1e-4)])
def test_a_computation_that_rounds_more_is_given_more_room_up_to_a_limit(
    rounding: float, tensor: float
) -> None:
    rounded = _with_gradient("last.weight", 1 + rounding, "float64")
    own = compare(_measurement("float64"), rounded, tolerance=TOLERANCES["float32"])
    assert own_rounding(own).tensor == pytest.approx(tensor, rel=0.05)
    assert own_rounding(own).loss == TOLERANCES["float32"].loss


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_never_agrees(value: float) -> None:
    broken = _with_gradient("first.bias", value)
    difference = compare(broken, broken, tolerance=TOLERANCES["float64"])
    assert not difference.ok
    assert difference.gradients.error == np.inf


def test_the_longest_tensor_is_that_of_the_largest_norm() -> None:
    assert longest_tensor({"many": np.full(5, 1.0), "large": np.array([3.0]), "none": np.zeros(9)}) == "large"


@pytest.mark.parametrize(
    ("factor", "ranks_agree", "explained"), [(1.01, True, True), (1.5, True, False), (1.01, False, False)]
)
def test_rounding_explains_small_jumps_on_ranks_that_agree(
    factor: float, ranks_agree: bool, explained: bool
) -> None:
    found = _with_gradient("last.weight", factor, "float32")
    difference = compare(
        _measurement("float32"), found, tolerance=TOLERANCES["float32"], ranks_agree=ranks_agree
    )
    assert not difference.ok
    assert difference.may_be_rounding is explained


@pytest.mark.parametrize("step", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("norm.num_batches", np.array(4)), ("is_warm", np.array([True, True]))],
    ids=["whole number", "truth value"],
)
def test_buffers_of_whole_numbers_and_truth_values_must_be_equal(
    name: str, value: np.ndarray[Any, Any], step: int
) -> None:
    measured = _measurement()
    difference = _compared(_with(measured, step=step, counts={**measured.steps[0].counts, name: value}))
    assert difference.failures == [f"the buffer {name} differs"]
    assert not difference.may_be_rounding
