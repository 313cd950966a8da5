"""`--model-edit`: functions of the user's own, as they are and as they fail."""

from pathlib import Path

import pytest
import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.create import create_model
from drivetrain.models.from_recipe import edit_model

MODULE = """\
from torch import nn
from torch.nn import functional

def halve(model):
    return nn.Sequential(model, nn.Linear(10, 5)).double()

def add_head(model):
    model.fc_layer = nn.Linear(64, 3)

def wrong(model):
    return 7

def broken(model):
    raise ValueError("no such layer")
"""


@pytest.fixture(autouse=True)
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "edits_for_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def build() -> nn.Module:
    return create_model("cifar_resnet8", image_size=8)


def test_no_edit_is_the_model_itself() -> None:
    model = build()
    assert edit_model(model, ()) is model


def test_a_returned_model_and_one_edited_in_place() -> None:
    edited = edit_model(build(), ["edits_for_test:add_head"])
    assert edited(torch.zeros(1, 3, 8, 8)).shape == (1, 3)
    wrapped = edit_model(build(), ["edits_for_test:halve"])
    assert wrapped(torch.zeros(1, 3, 8, 8)).shape == (1, 5)
    assert {parameter.dtype for parameter in wrapped.parameters()} == {torch.float32}


def test_edits_run_in_order() -> None:
    with pytest.raises(RuntimeError):
        edit_model(build(), ["edits_for_test:add_head", "edits_for_test:halve"])(torch.zeros(1, 3, 8, 8))


def test_what_an_edit_draws_follows_from_the_seed_alone() -> None:
    def head(seed: int) -> torch.Tensor:
        return edit_model(build(), ["edits_for_test:add_head"], seed=seed).get_parameter("fc_layer.weight")

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = head(0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(head(0), first)
    assert not torch.equal(head(1), first)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("edits_for_test:wrong", "--model-edit edits_for_test:wrong returned a int; return the model"),
        ("edits_for_test:broken", "--model-edit edits_for_test:broken failed: ValueError: no such layer"),
        ("edits_for_test:add_hed", "Did you mean edits_for_test:add_head?"),
        ("no_such_module:edit", "--model-edit no_such_module:edit cannot be imported"),
    ],
)
def test_failures(name: str, part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        edit_model(build(), [name])
    assert part in str(caught.value)
