"""Captured updates on a CUDA device: the bits of updates that run one by one, or a reason why not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import drivetrain
from drivetrain.program.capture import CapturedUpdates
from tests.program.capture_cases import CASES, CLASSIFICATION, SEGMENTATION
from tests.run.small_runs import weights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")

Weights = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(autouse=True)
def deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


def _train(directory: Path, **options: Any) -> tuple[Weights, str]:
    result = drivetrain.train(
        **{"max_updates": 9, "device": "cuda", "validation": False, "log_every": 3, **options},
        output_dir=str(directory),
        quiet=True,
    )
    return weights(directory), result.metrics["capture"]


def _assert_same(found: Weights, expected: Weights) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), (name, np.abs(found[name] - value).max())


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_replayed_updates_have_the_bits_of_others(tmp_path: Path, options: dict[str, Any]) -> None:
    expected, why_not = _train(tmp_path / "plain", **options, capture="off", compile="off")
    assert why_not == "not captured: --capture off"
    found, status = _train(tmp_path / "captured", **options, compile="off")
    assert status == "captured"
    _assert_same(found, expected)


@pytest.mark.parametrize("options", [CLASSIFICATION, SEGMENTATION], ids=["classes", "masks"])
def test_compiled_updates_are_captured_with_the_same_bits(tmp_path: Path, options: dict[str, Any]) -> None:
    expected, _ = _train(tmp_path / "plain", **options, capture="off", compile="on")
    found, status = _train(tmp_path / "captured", **options, compile="on")
    assert status == "captured"
    _assert_same(found, expected)


def test_the_check_sees_contents_that_were_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = _train(tmp_path / "plain", **CLASSIFICATION, capture="off", compile="off")
    monkeypatch.setattr(CapturedUpdates, "_hand_over", lambda *_: None)
    found, _ = _train(tmp_path / "captured", **CLASSIFICATION, compile="off")
    assert any(not np.array_equal(found[name], value) for name, value in expected.items())


class _Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.layer(images.flatten(1))
        return outputs


class _Dropping(_Plain):
    """Draws from the device's generator."""

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(images), 0.3, self.training)


class _Asking(_Plain):
    """Asks for a value to decide what to do."""

    def forward(self, images: Tensor) -> Tensor:
        outputs = super().forward(images)
        return outputs if outputs.sum().item() > 0 else 0.5 * outputs


class _DroppingAndAsking(_Asking):
    """Has drawn when the recording fails."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(images, 0.3, self.training))


def test_draws_of_a_model_are_those_of_its_update(tmp_path: Path) -> None:
    expected, _ = _train(tmp_path / "plain", **CLASSIFICATION, model=_Dropping(), capture="off")
    found, status = _train(tmp_path / "captured", **CLASSIFICATION, model=_Dropping())
    assert status == "captured"
    _assert_same(found, expected)


@pytest.mark.parametrize("make_model", [_Asking, _DroppingAndAsking])
def test_models_that_ask_the_host_run_as_they_are(tmp_path: Path, make_model: type[_Plain]) -> None:
    expected, _ = _train(tmp_path / "plain", **CLASSIFICATION, model=make_model(), capture="off")
    found, status = _train(tmp_path / "captured", **CLASSIFICATION, model=make_model())
    assert status.startswith("not captured: ")
    assert "captur" in status.removeprefix("not captured: ")
    _assert_same(found, expected)
    # The process is none the worse: the next run is captured.
    again, _ = _train(tmp_path / "next plain", **CLASSIFICATION, model=_Dropping(), capture="off")
    after, status = _train(tmp_path / "next", **CLASSIFICATION, model=_Dropping())
    assert status == "captured"
    _assert_same(after, again)
