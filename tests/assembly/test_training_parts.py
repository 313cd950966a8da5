"""What is said of a model before it trains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import drivetrain
from drivetrain.core.errors import BadInputError


class _OwnStatistics(nn.Module):
    mean: Tensor
    variance: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("variance", torch.ones(1))
        self.head = nn.Linear(36, 2)

    def forward(self, images: Tensor) -> Tensor:
        normalised = functional.batch_norm(images, self.mean, self.variance, training=self.training)
        logits: Tensor = self.head(normalised.flatten(1))
        return logits


def _said(capsys: pytest.CaptureFixture[str], path: Path, **options: Any) -> str:
    images = np.random.default_rng(0).integers(0, 255, (16, 6, 6, 1), dtype=np.uint8)
    drivetrain.train(
        data=(images, np.arange(16) % 2),
        micro_batch_size=4,
        num_epochs=1,
        output_dir=str(path),
        compile="off",
        **options,
    )
    said = capsys.readouterr()
    return " ".join((said.out + said.err).split())


def test_options_about_batch_norm_without_one_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said(capsys, tmp_path / "run", model=_OwnStatistics(), bn_momentum=0.9, stable_norm=True)
    without = f"--model {__name__}:_OwnStatistics has no trainable batch norm."
    assert f"--bn-momentum 0.9 has no effect: {without}" in said
    assert f"--stable-norm True has no effect: {without}" in said
    assert "buffer" not in said


def test_statistics_of_a_users_own_that_depend_on_the_cut_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said(capsys, tmp_path / "run", model=_OwnStatistics(), gradient_accumulation_count=2)
    assert (
        "--model updates its buffer mean and 1 more itself, at every micro-batch, so they depend on "
        "--gradient-accumulation-count 2; statistics of torch's batch norms do not."
    ) in said


class _Counting(nn.Module):
    """Counts its calls in a number and in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.seen: list[int] = []
        self.head = nn.Linear(36, 2)

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(self.calls)
        logits: Tensor = self.head(images.flatten(1))
        return logits


def test_counts_of_a_users_own_are_said_where_they_depend_on_the_cut_or_are_not_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said(capsys, tmp_path / "run", model=_Counting(), gradient_accumulation_count=2)
    assert "--model updates its attribute calls and 1 more itself, at every micro-batch, so they" in said
    assert (
        "--model changes its attribute seen in its forward pass, but a checkpoint stores only tensors and "
        "numbers of modules, so a continued run would not be the same; use a buffer instead of a list."
    ) in said
    alone = _said(capsys, tmp_path / "alone", model=_Counting(), checkpoints=False)
    assert "updates its attribute" not in alone
    assert "seen" not in alone


def test_building_a_training_counts_no_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = _Counting()
    _said(capsys, tmp_path / "run", model=model, max_updates=1, validation=False)
    assert model.calls == 1


def test_options_of_a_validation_that_there_is_not_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "patience": 3,
        "stop_at": "accuracy=0.9",
        "evaluate_every": 2,
        "validation_micro_batch_size": 3,
    }
    said = _said(capsys, tmp_path / "run", model=_OwnStatistics(), **options)
    for name, value in options.items():
        option = f"--{name.replace('_', '-')} {value}"
        assert f"{option} has no effect: there are no validation samples." in said


def test_offloading_on_a_cpu_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"optimizer_state_offloading": True, "device": "cpu"}
    said = _said(capsys, tmp_path / "run", model=_OwnStatistics(), **options)
    assert "--optimizer-state-offloading True has no effect on a CPU" in said


def test_the_first_line_counts_the_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = _said(capsys, tmp_path / "run", model=_OwnStatistics())
    assert "16 training samples in 2 classes, " in said


def test_labels_that_start_at_1_are_refused_with_what_they_are(tmp_path: Path) -> None:
    images = np.zeros((12, 6, 6, 1), dtype=np.uint8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with pytest.raises(BadInputError, match="go from 1 to 3, but labels must start at 0; subtract 1"):
        drivetrain.train(
            data=(images, np.arange(12) % 3 + 1),
            model=model,
            micro_batch_size=4,
            output_dir=str(tmp_path / "run"),
        )
