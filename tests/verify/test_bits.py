"""The comparison of bits: every tensor counts, and the last bit of one is noticed and named."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivetrain.verify.bits import compare_bits
from drivetrain.verify.measure import Measurement, Step

PARTS = ("gradients", "statistics", "counts", "weights", "optimiser")
WORDS = {
    "gradients": "the gradient of line",
    "statistics": "the running statistics line",
    "counts": "the buffer line",
    "weights": "the updated line",
    "optimiser": "the optimizer state line",
}


def _measurement(*, updates: int = 10) -> Measurement:
    values = np.linspace(0.5, 2.0, 4, dtype=np.float32)
    parts: dict[str, Any] = {part: {"line": values.copy(), "scale": np.ones(())} for part in PARTS}
    step = Step(**parts)
    return Measurement(
        steps=(step,) if updates == 1 else (step, step),
        losses=np.linspace(2.0, 1.0, updates),
        draws_from_torch=False,
    )


def _with_last_bit(measured: Measurement, *, step: int, part: str) -> Measurement:
    """The measurement in which one element of one tensor has another last bit."""
    values = getattr(measured.steps[step], part)["line"].copy()
    values[-1] = np.nextafter(values[-1], np.float32(3))
    steps = list(measured.steps)
    steps[step] = replace(steps[step], **{part: {**getattr(steps[step], part), "line": values}})
    return replace(measured, steps=tuple(steps))


@pytest.mark.parametrize("updates", [1, 10])
def test_the_same_bits_are_the_same(updates: int) -> None:
    bits = compare_bits(_measurement(updates=updates), _measurement(updates=updates))
    assert (bits.are_same, bits.in_words) == (True, "same")
    assert bits.to_json() == {
        "same": bits.total,
        "compared": updates + min(updates, 2) * 10,
        "first_difference": None,
    }


@pytest.mark.parametrize("step", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("part", PARTS)
def test_one_changed_last_bit_is_noticed_and_named(part: str, step: int) -> None:
    bits = compare_bits(_measurement(), _with_last_bit(_measurement(), step=step, part=part))
    assert not bits.are_same
    assert bits.total - bits.same == 1
    assert bits.in_words == f"update {(1, 10)[step]}: {WORDS[part]}"


def test_the_loss_of_an_update_in_between_counts() -> None:
    other = _measurement()
    other.losses[4] = np.nextafter(other.losses[4], 3)
    assert compare_bits(_measurement(), other).in_words == "update 5: the loss"


def test_what_an_update_computes_first_is_named() -> None:
    found = _with_last_bit(_measurement(), step=1, part="gradients")
    for part in ("weights", "statistics"):
        found = _with_last_bit(found, step=0, part=part)
    bits = compare_bits(_measurement(), found)
    assert bits.in_words == "update 1: the running statistics line"
    assert bits.total - bits.same == 3


def test_a_zero_with_a_sign_has_other_bits_and_the_same_nan_has_not() -> None:
    def lone(value: float) -> Measurement:
        step = Step(gradients={"line": np.array([value])}, statistics={}, counts={}, weights={}, optimiser={})
        return Measurement(steps=(step,), losses=np.ones(1), draws_from_torch=False)

    assert not compare_bits(lone(0.0), lone(-0.0)).are_same
    assert compare_bits(lone(float("nan")), lone(float("nan"))).are_same
