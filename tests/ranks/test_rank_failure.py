"""The layer that an error came from is read off the error."""

import gc
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.ranks.rank_failure import failing_layer
from drivetrain.ranks.rank_process import failure_of


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Linear(3, 2)

    def forward(self, values: Tensor) -> Tensor:
        return self.narrow(values)  # type: ignore[no-any-return]


def _error_of(model: nn.Module, values: Tensor) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        model(values)
    return caught.value


def test_the_innermost_layer_is_named_by_its_place_in_the_model() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), _Block()))
    error = _error_of(model, torch.zeros(2, 4))
    assert failing_layer(error) == "1.1.narrow (Linear)"
    failure = failure_of(error, rank=3)
    assert failure.message.startswith("RuntimeError: mat1 and mat2")
    assert failure.sentence.endswith("(in layer 1.1.narrow (Linear))")


def test_what_an_error_was_raised_from_counts() -> None:
    error = BadInputError("--model cannot take such images.")
    error.__cause__ = _error_of(nn.Sequential(_Block()), torch.zeros(2, 4))
    assert failing_layer(error) == "0.narrow (Linear)"
    # What was written for the user stays as it was written.
    assert failure_of(error, rank=0).message == "--model cannot take such images."


def test_an_error_elsewhere_has_no_layer() -> None:
    assert failing_layer(_error_of(nn.Linear(3, 2), torch.zeros(2, 4))) is None
    error = ValueError("of the data")
    assert failing_layer(error) is None
    assert failure_of(error, rank=0).message == "ValueError: of the data"


class _Held:
    """Something that an error's frames hold."""


def _fail_and_look(held: _Held) -> None:
    try:
        assert held is None
    except AssertionError as error:
        failing_layer(error)


def test_looking_holds_nothing_longer_than_the_error() -> None:
    held = _Held()
    watched = ref(held)
    gc.disable()
    try:
        _fail_and_look(held)
        del held
        assert watched() is None
    finally:
        gc.enable()


class _Compiled(nn.Module):
    """The names that torch.compile gives."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._orig_mod = model

    def forward(self, values: Tensor) -> Tensor:
        return self._orig_mod(values)  # type: ignore[no-any-return]


def test_the_wrapper_of_a_compiled_model_is_left_out() -> None:
    assert failing_layer(_error_of(_Compiled(_Block()), torch.zeros(2, 4))) == "narrow (Linear)"
