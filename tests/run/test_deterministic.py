"""Runs with --deterministic: equal bits twice, no choice by measured times, and what a change means."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import drivetrain
from drivetrain.core.files import read_json
from drivetrain.run.compiling import compile_choice
from drivetrain.run.compiling.compile_timer import ProgramTimer
from tests.run.small_training import SMALL, TrainSmall, final_files

pytestmark = pytest.mark.usefixtures("no_pictures")

SHORT: dict[str, Any] = {"max_updates": 2, "limit_train_samples": 40}


class _Unpooling(nn.Module):
    """torch says of unpooling, also on a CPU, that it is not deterministic; running statistics move too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)
        self.line = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        values, places = self.pool(self.norm(images))
        logits: Tensor = self.line(self.unpool(values, places).flatten(1))
        return logits


def _trained(path: Path, capfd: pytest.CaptureFixture[str], **options: Any) -> str:
    """What a training from one seed prints."""
    torch.manual_seed(0)
    drivetrain.train(output_dir=str(path), **{**SMALL, **SHORT, "model": _Unpooling(), **options})
    printed = capfd.readouterr()
    return " ".join((printed.out + printed.err).split())


def test_two_runs_have_equal_bits_and_the_operation_that_may_change_them_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = _trained(tmp_path / "one", capfd, deterministic=True)
    assert said.count("no deterministic algorithm for max_unpooling2d_forward_out, which layer unpool") == 1
    assert "set 'torch.use_deterministic_algorithms" not in said
    _trained(tmp_path / "two", capfd, deterministic=True)
    assert final_files(tmp_path / "one") == final_files(tmp_path / "two")
    # The update on trial leaves no trace: without it the bits are the same.
    assert "no deterministic algorithm" not in _trained(tmp_path / "plain", capfd)
    assert final_files(tmp_path / "plain") == final_files(tmp_path / "one")
    _trained(tmp_path / "other", capfd, deterministic=True, seed=2)
    assert final_files(tmp_path / "other") != final_files(tmp_path / "one")
    assert read_json(tmp_path / "one" / "environment.json")["deterministic"] is True


@pytest.mark.parametrize("is_deterministic", [True, False])
def test_no_measured_time_decides_whether_to_compile(
    is_deterministic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_small: TrainSmall
) -> None:
    measured: list[str] = []

    def time_plain(_timer: ProgramTimer) -> float:
        measured.append("plain")
        return 1e-6

    monkeypatch.setattr(compile_choice, "FEWEST_UPDATES", 1)
    monkeypatch.setattr(compile_choice, "_known", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(ProgramTimer, "time_plain", time_plain)
    train_small(tmp_path / "run", compile="auto", deterministic=is_deterministic, **SHORT)
    assert measured == ([] if is_deterministic else ["plain"])
    choice = read_json(tmp_path / "run" / "plan.json")["compile"]
    assert choice["on"] is False
    assert (
        choice["reason"] == "--deterministic measures no times; --compile on compiles"
    ) is is_deterministic


def test_a_continued_run_keeps_its_threads_and_says_what_another_number_means(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    _trained(run, capfd, num_threads=2)
    said = _trained(run, capfd, max_updates=4)
    assert read_json(run / "environment.json")["threads"] == 2
    assert "last started with" not in said
    said = _trained(run, capfd, max_updates=6, num_threads=1)
    assert "the run was last started with --num-threads 2, and goes on with --num-threads 1;" in said
    assert read_json(run / "environment.json")["threads"] == 1
