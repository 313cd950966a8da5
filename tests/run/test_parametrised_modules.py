"""Modules whose weights torch parametrises, on several ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import drivetrain
from drivetrain.core.errors import BadInputError
from drivetrain.run import rank_training as ranks
from tests.program.harness import worst_error
from tests.run.rank_runs import weights


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        weight_norm(nn.Conv2d(1, 4, 3)), nn.ReLU(), nn.Flatten(), spectral_norm(nn.Linear(4 * 16, 3))
    )


def _train(path: Path, model: nn.Module, *, micro: int = 4, **options: Any) -> nn.Module:
    images = np.random.default_rng(0).integers(0, 255, (16, 6, 6, 1), dtype=np.uint8)
    return drivetrain.train(
        model=model,
        data=(images, np.arange(16) % 3),
        micro_batch_size=micro,
        global_batch_size=16,
        max_updates=1,
        learning_rate=0.1,
        output_dir=str(path),
        num_threads=1,
        device="cpu",
        compile="off",
        quiet=True,
        **options,
    ).model


@pytest.mark.parametrize(
    ("layout", "micro_alone"), [({"replicas": 2}, 8), ({"stages": 2}, 4)], ids=["replicas", "stages"]
)
def test_an_update_of_several_ranks_is_that_of_one_process(
    tmp_path: Path, layout: dict[str, int], micro_alone: int
) -> None:
    # Spectral norm iterates once per pass, so both must run as many.
    model = _model()
    before = model.state_dict()["3.parametrizations.weight.original"].clone()
    _train(tmp_path / "alone", _model(), micro=micro_alone)
    _train(tmp_path / "ranks", model, **layout)
    assert worst_error(weights(tmp_path / "alone"), weights(tmp_path / "ranks")) <= 1e-5
    assert not torch.equal(model.state_dict()["3.parametrizations.weight.original"], before)


def test_a_model_that_cannot_be_sent_is_refused_before_ranks_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(nn.Sequential):
        """No other process can import it."""

    monkeypatch.setattr(ranks, "launch", lambda *_, **__: pytest.fail("ranks were started"))
    with pytest.raises(BadInputError, match=r"^The model cannot be sent to other processes \(.*Local"):
        _train(tmp_path / "run", Local(nn.Flatten(), nn.Linear(36, 3)), replicas=2)
    assert not (tmp_path / "run").exists()
