"""What does not fit the memory is computed in smaller micro-batches, with the same update."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from drivetrain.auto.choose import _Timed, fit_memory
from drivetrain.auto.decide import decide
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.schema import Recipe
from tests.auto.fingerprints import ACCELERATOR, photographs

GIVEN = {"dataset": "image-folder", "data_dir": "photos"}


def _timed(
    monkeypatch: pytest.MonkeyPatch, *, most: Mapping[int, int], **typed: str
) -> tuple[_Timed, list[Any]]:
    """A timer for a device whose memory takes at most so many images of a side."""
    tried: list[tuple[int, int, int | None]] = []

    def sample_seconds(recipe: Recipe, **_: Any) -> float:
        side = recipe.image_size or 0
        tried.append((side, recipe.micro_batch_size, recipe.global_batch_size))
        if recipe.micro_batch_size > most.get(side, 1000):
            raise torch.OutOfMemoryError
        return 1e-6 * side

    monkeypatch.setattr("drivetrain.auto.choose.sample_seconds", sample_seconds)
    return _Timed({**GIVEN, **typed}, reporter=Reporter(quiet=True)), tried


def test_the_update_stays_and_only_that_network_gets_smaller_micro_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed, tried = _timed(monkeypatch, most={224: 16})
    large = {"model": "resnet18", "image_size": 224, "micro_batch_size": 64}
    small = {**large, "image_size": 96}
    assert timed.seconds(large) == 1e-6 * 224
    assert tried == [(224, 64, None), (224, 32, 64), (224, 16, 64)]
    assert timed.seconds(small) == 1e-6 * 96
    assert (timed.fitting(large), timed.fitting(small)) == (16, None)


def test_a_typed_micro_batch_is_not_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    timed, tried = _timed(monkeypatch, most={224: 16}, micro_batch_size="64")
    with pytest.raises(BadInputError, match="No micro-batch fits the memory"):
        timed.seconds({"model": "resnet18", "image_size": 224})
    assert len(tried) == 1


def test_the_decision_keeps_the_update_and_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    timed, _ = _timed(monkeypatch, most=dict.fromkeys((224, 192, 160, 128, 96, 64), 8))
    case = decide(photographs(), device=ACCELERATOR, typed={}, time=timed.seconds, left_s=lambda: 600.0)
    whole, rate = case.global_batch, case.value("learning_rate")
    fit_memory(case, timed.fitting({field: found.value for field, found in case.decisions.items()}))
    assert whole == 64
    assert (case.value("micro_batch_size"), case.global_batch, case.value("learning_rate")) == (8, 64, rate)
    assert "do not fit the memory" in case.decisions["micro_batch_size"].reason
