"""Layers whose output depends on what they change: every cut is the model in one piece, bit for bit."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.layers.moving_state import StageState
from drivetrain.models.kept_values import keeping_values
from drivetrain.models.module_values import places_of
from drivetrain.models.rehearsal import rehearse
from drivetrain.pipeline.graph.trace import trace_model
from tests.pipeline.moving_models import LAYERS, WithState
from tests.pipeline.odd_models import cut_subject
from tests.pipeline.staged import Outcome, Subject, laid_out

SHAPE = (3, 4, 4)


def _subject(layer: str, **attributes: Tensor) -> Subject:
    model = WithState(layer).double()
    vars(model.odd).update(attributes)
    assert rehearse(model, image_shape=SHAPE) is not None
    return cut_subject(model, "second")


def _state(subject: Subject) -> dict[str, Any]:
    values = {place.name: place.value for place in places_of(subject.model) if place.name.startswith("odd.")}
    # The weight of an old spectral norm is what the last pass has computed.
    return {name: _plain(value) for name, value in values.items() if getattr(value, "grad_fn", None) is None}


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    return {key: _plain(part) for key, part in value.items()} if isinstance(value, dict) else value


def _assert_same(expected: Outcome, found: Outcome) -> None:
    for name in expected.gradients:
        assert np.array_equal(expected.gradients[name], found.gradients[name]), name
    assert found.loss == pytest.approx(expected.loss, rel=1e-12)


# gpipe runs all first passes before any second one; 1f1b has two micro-batches in flight.
@pytest.mark.parametrize("recomputes", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zero-bubble"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_cut_is_the_model_in_one_piece(layer: str, schedule: str, recomputes: bool) -> None:
    whole, cut = _subject(layer), _subject(layer)
    expected = whole.plain()
    found = cut.staged(laid_out(cut.plans[0], schedule=schedule, recomputes=recomputes))
    _assert_same(expected, found)
    assert _state(cut) == _state(whole)
    assert _state(_subject(layer)) != _state(whole)


@pytest.mark.parametrize("layer", ["spectral norm", "buffer in place", "buffer anew", "Python number"])
def test_what_moves_is_found_without_a_rehearsal(layer: str) -> None:
    whole, cut = (cut_subject(WithState(layer), "second") for _ in range(2))
    expected = whole.plain()
    _assert_same(expected, cut.staged(laid_out(cut.plans[0], schedule="gpipe", recomputes=True)))
    assert _state(cut) == _state(whole)


def test_the_check_sees_passes_that_are_not_rewound(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = _subject("buffer in place"), _subject("buffer in place")
    expected = whole.plain()
    monkeypatch.setattr(StageState, "rewound", lambda self, _: keeping_values(self.module))
    monkeypatch.setattr(StageState, "module", cut.model, raising=False)
    found = cut.staged(laid_out(cut.plans[0], schedule="gpipe", recomputes=True))
    with pytest.raises(AssertionError):
        _assert_same(expected, found)


def test_a_change_that_begins_later_stops_the_training() -> None:
    later = torch.zeros(())
    subject = _subject("view", later=later)
    handle = subject.model.get_submodule("odd").register_forward_pre_hook(lambda *_: _add_one(later))
    with pytest.raises(RunFailedError, match=r"--model has changed odd\.later in place"):
        subject.staged(laid_out(subject.plans[0], recomputes=True))
    handle.remove()


def _add_one(value: Tensor) -> None:
    value.add_(1)


class _RootState(WithState):
    def __init__(self) -> None:
        super().__init__("plain tensor")
        self.calls = torch.zeros(())

    def forward(self, images: Tensor) -> Tensor:
        self.calls.add_(1)
        return super().forward(images) * self.calls


def test_state_of_the_model_itself_is_refused_before_a_trace_would_drop_it() -> None:
    model = _RootState()
    rehearse(model, image_shape=SHAPE)
    with pytest.raises(BadInputError, match=r"changes self\.calls; move that step into"):
        trace_model(model)
    assert float(model.calls) == 0
