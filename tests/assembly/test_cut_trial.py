"""One run of a copy of the model, whole or in stages."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from drivetrain.assembly import cut_check
from drivetrain.assembly.cut_trial import Outcome, Trial, run_trial
from tests.assembly.cut_models import Small, caught


def _trial(monkeypatch: pytest.MonkeyPatch, path: Path, model: nn.Module) -> Trial:
    trials: list[Trial] = []
    compare = caught(monkeypatch, path, model)

    def run(trial: Trial, **options: Any) -> Outcome:
        trials.append(trial)
        return run_trial(trial, **options)

    monkeypatch.setattr(cut_check, "run_trial", run)
    compare()
    return trials[0]


class _Drawing(Small):
    """Draws a number from a generator in every pass and ignores it."""

    def __init__(self, draw: Any) -> None:
        super().__init__()
        self.draw = draw
        self.register_forward_pre_hook(lambda *_: self.draw() and None)


@pytest.mark.parametrize("draw", [lambda: torch.rand(()), random.random, np.random.random])
def test_draws_are_undone(draw: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trial = _trial(monkeypatch, tmp_path / "other", _Drawing(draw))
    before = random.getstate(), np.random.get_state()[2], torch.get_rng_state()  # type: ignore[index]
    run_trial(trial, in_stages=False)
    assert (random.getstate(), np.random.get_state()[2]) == before[:2]  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize("in_stages", [False, True])
def test_copies_keep_the_hooks_of_parameters(
    in_stages: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trial = _trial(monkeypatch, tmp_path / "run", Small())
    plain = run_trial(trial, in_stages=in_stages).gradients
    first, second = (trial.model.get_parameter(f"{layer}.weight") for layer in ("first", "second"))
    after: list[torch.Size] = []
    first.register_hook(lambda gradient: gradient * 2)  # type: ignore[no-untyped-call]
    second.register_post_accumulate_grad_hook(lambda weight: after.append(weight.shape))  # type: ignore[no-untyped-call]
    hooked = run_trial(trial, in_stages=in_stages).gradients
    assert torch.equal(hooked["first.weight"], plain["first.weight"] * 2)
    assert torch.equal(hooked["second.weight"], plain["second.weight"])
    assert after == [second.shape]


def test_layers_are_recorded_with_their_values_only_if_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trial = _trial(monkeypatch, tmp_path / "run", Small())
    without = run_trial(trial, in_stages=True).calls
    assert len(without["drop"]) == 2
    assert without["drop"][0].kinds == (torch.float32,)
    assert without["drop"][0].outputs == ()
    values: tuple[Tensor, ...] = run_trial(trial, in_stages=True, keeps_values=True).calls["drop"][0].outputs
    assert values[0].shape == (4, 4, 6, 6)
