"""What counts as a difference between stages and the whole model."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.assembly.cut_difference import find_difference, is_same, tensor_errors
from drivetrain.assembly.cut_trial import LayerCall, Outcome
from drivetrain.pipeline.graph.trace import TracedModel, trace_model

ONES = torch.ones(4)
CALL = LayerCall((torch.float32,), (ONES,), (ONES,))
WHOLE = Outcome(
    outputs=[ONES],
    gradients={"0.weight": ONES, "1.weight": ONES},
    buffers={"mean": ONES, "count": torch.tensor(3)},
    calls={"0": [CALL], "1": [CALL]},
    is_half=False,
)
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "outputs": ({"outputs": [ONES * 1.01]}, "the output is off by 9.9e-03 of its size"),
    "recomputed outputs": ({"outputs": [ONES, ONES * 2]}, "the output is off by 9.9e-01 of its size"),
    "outputs of another shape": ({"outputs": [torch.ones(5)]}, "the output is another"),
    "outputs that are not numbers": ({"outputs": [ONES / 0 * 0]}, "the output is another"),
    "gradients": (
        {"gradients": {"0.weight": ONES * 2, "1.weight": ONES * 2}},
        "the gradient of 1.weight, at layer 1, is off by 9.9e-01 of its size",
    ),
    "buffers": ({"buffers": WHOLE.buffers | {"mean": ONES * 2}}, "the buffer mean is off by "),
    "counts": ({"buffers": WHOLE.buffers | {"count": torch.tensor(4)}}, "the buffer count is off by 3.3e-01"),
    "a layer that does not run": ({"calls": {"0": [CALL], "1": []}}, "layer 1 does not run"),
    "an output of a layer": (
        {"calls": WHOLE.calls | {"1": [replace(CALL, outputs=(ONES * 2,))]}, "outputs": [ONES * 2]},
        "the output of layer 1 is off by 9.9e-01 of its size, although its input is the same",
    ),
    "an input of a layer": (
        {"calls": WHOLE.calls | {"1": [replace(CALL, inputs=(ONES * 2,))]}, "outputs": [ONES * 2]},
        "the input of layer 1 is off by 9.9e-01 of its size, due to the code between layer 0 and it",
    ),
    "another type": (
        {"calls": WHOLE.calls | {"0": [replace(CALL, kinds=(torch.bfloat16,))]}},
        "layer 0 returns bfloat16 instead of float32",
    ),
}


@pytest.fixture(scope="module")
def traced() -> TracedModel:
    return trace_model(nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)))


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_a_difference_with_its_words(name: str, traced: TracedModel) -> None:
    change, said = CHANGES[name]
    cut = replace(WHOLE, **change)
    assert not is_same(WHOLE, cut)
    assert str(find_difference(WHOLE, cut, traced=traced)).startswith(said)


def test_what_is_equal_is_the_same(traced: TracedModel) -> None:
    same = replace(WHOLE, outputs=[ONES.clone()])
    assert is_same(WHOLE, same)
    assert find_difference(WHOLE, same, traced=traced) is None


@pytest.mark.parametrize("is_half", [False, True])
def test_rounding_is_no_difference(is_half: bool) -> None:
    whole = replace(WHOLE, is_half=is_half)
    rounding = 2e-2 if is_half else 5e-4
    for factor, same in ((1 + rounding, True), (1 + 3 * rounding, False)):
        changed: dict[str, Tensor] = {name: value * factor for name, value in WHOLE.gradients.items()}
        assert is_same(whole, replace(whole, gradients=changed)) == same


def test_recomputed_calls_count_only_once() -> None:
    again = replace(CALL, kinds=(torch.float64,))
    assert is_same(WHOLE, replace(WHOLE, calls={"0": [CALL, again], "1": [CALL, again]}))


def test_the_same_infinities_and_nans_are_equal() -> None:
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0])
    assert tensor_errors({"odd": odd}, {"odd": odd.clone()}) == {"odd": 0.0}
    assert tensor_errors({"odd": odd}, {"odd": odd.abs()})["odd"] == torch.inf
    assert tensor_errors({"odd": odd}, {"odd": torch.ones(4)})["odd"] == torch.inf
    assert tensor_errors({"odd": odd}, {})["odd"] == torch.inf


def test_a_tensor_of_almost_nothing_is_measured_by_the_others() -> None:
    expected = {"large": torch.full((100,), 10.0), "small": torch.zeros(1)}
    assert tensor_errors(expected, {**expected, "small": torch.tensor([1e-5])})["small"] < 1e-4


def test_complex_numbers_differ_in_both_parts() -> None:
    expected = torch.tensor([1 + 1j])
    assert tensor_errors({"z": expected}, {"z": expected.conj().resolve_conj()})["z"] > 1
