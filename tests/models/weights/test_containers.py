"""What other programs store around a state dict, and in front of its names."""

from typing import Any

import pytest
import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.models.weights.containers import state_dict_in, without_prefixes

STATE = {"a.weight": torch.ones(2), "b": torch.zeros(1)}


def unwrapped(content: Any) -> tuple[dict[str, Tensor], list[str]]:
    return state_dict_in(content, given="--pretrained x.pt")


@pytest.mark.parametrize(
    "content",
    [
        STATE,
        {"state_dict": STATE, "epoch": 3, "optimizer": {"state": {}}},
        {"model": STATE},
        {"model_state_dict": STATE},
        {"model": {"state_dict": STATE}},
        {**STATE, "epoch": 3},
        {"model_ema": {**STATE, "n_averaged": torch.tensor(5)}},
    ],
)
def test_the_state_dict_is_found(content: Any) -> None:
    assert unwrapped(content) == (STATE, [])


def test_averaged_weights_are_taken_and_said() -> None:
    others = {name: value + 1 for name, value in STATE.items()}
    taken, warnings = unwrapped({"state_dict": others, "state_dict_ema": STATE})
    assert taken == STATE
    assert warnings == ["--pretrained x.pt: takes the averaged weights state_dict_ema, not state_dict."]


@pytest.mark.parametrize("content", [{}, [torch.ones(1)], {"model": 3}, {"model": {}}, {1: torch.ones(1)}])
def test_anything_else_is_refused(content: Any) -> None:
    with pytest.raises(BadInputError, match="is not a plain state dict of tensors"):
        unwrapped(content)


@pytest.mark.parametrize(
    ("prefix", "times"),
    [("", 0), ("module.", 1), ("_orig_mod.", 1), ("module._orig_mod.model.", 3), ("net.", 0)],
)
def test_prefixes_of_wrappers(prefix: str, times: int) -> None:
    shorter = without_prefixes({f"{prefix}{name}": value for name, value in STATE.items()})
    assert len(shorter) == times
    assert not times or shorter[-1] == STATE


def test_a_prefix_that_not_all_names_have_belongs_to_them() -> None:
    assert without_prefixes({"model.a": torch.ones(1), "b": torch.ones(1)}) == []


def test_tensors_beside_the_weights_are_not_taken_for_them() -> None:
    weights = {"head.weight": torch.ones(2)}
    assert unwrapped({"epoch": torch.tensor(3), "state_dict": weights}) == (weights, [])
