"""Runs of stages by the command line: as many processes as a laptop takes, other layouts, signals."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE
from tests.deadlines import HANG_S, wait_until
from tests.run.rank_runs import Ending, losses, train_rank, weights
from tests.run.small_runs import first_losses_differ

# One process adds up the same micro-batches in the same order as two stages do.
OPTIONS: dict[str, Any] = {
    "micro_batch_size": 2,
    "lr_schedule": "const",
    "num_epochs": 100000,
    "max_updates": 3,
    "num_threads": 1,
}
TYPED = [
    "--dataset=digits",
    "--model=cifar_resnet8",
    "--limit-train-samples=36",
    "--limit-validation-samples=21",
    "--micro-batch-size=2",
    "--global-batch-size=16",
    "--learning-rate=0.01",
    "--lr-schedule=const",
    "--num-epochs=100000",
    "--num-threads=1",
    "--seed=1",
    "--device=cpu",
]

# What a trace sees is of another type, so it misses the step that doubles.
MISREAD = """
from torch import Tensor, nn

class Net(nn.Module):
    def __init__(self, **_):
        super().__init__()
        self.first, self.second = nn.Flatten(), nn.Linear(64, 10)

    def forward(self, images):
        values = self.first(images)
        if type(values) is Tensor:
            values = values * 2
        return self.second(values)
"""


def _alone(path: Path, **options: Any) -> tuple[str, int, int]:
    return train_rank(ALONE, str(path), {**OPTIONS, **options})[:3]


def _in_stages(pool: RankPool, path: Path, **options: Any) -> tuple[str, int, int]:
    """Two stages on two ranks, which must end alike."""
    given = {**OPTIONS, "stages": 2, "replicas": 1, **options}
    endings: list[Ending] = pool.run(train_rank, str(path), given, ranks=2)
    assert endings[0][:3] == endings[1][:3]
    return endings[0][:3]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three updates by one process, undisturbed."""
    path = tmp_path_factory.mktemp("alone") / "run"
    assert _alone(path) == ("finished", 3, 0)
    return path


def _command(path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "drivetrain", "train", f"--output-dir={path}", *options]


def _train(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        _command(path, *options), capture_output=True, text=True, timeout=HANG_S, check=False
    )


def _events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def _told(path: Path) -> list[tuple[str, int]]:
    return [(event["event"], event["update"]) for event in _events(path)]


def _are_equal(one: Path, other: Path, *, names: Sequence[str] = ("model", "optimizer")) -> bool:
    for name in names:
        expected, found = weights(one, name), weights(other, name)
        if found.keys() != expected.keys():
            return False
        if any(found[key].tobytes() != expected[key].tobytes() for key in expected):
            return False
    return True


def test_four_stages_of_two_replicas_as_eight_processes(alone: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    finished = _train(path, *TYPED, "--max-updates=3", "--stages=4", "--replicas=2")
    assert finished.returncode == 0, finished.stderr
    assert "4 pipeline stages on 4 devices per replica" in finished.stdout
    assert first_losses_differ(alone, path) < 1e-5
    assert _told(path) == _told(alone)
    assert len(set(_told(path))) == len(_told(path))
    assert sorted(log.name for log in path.glob("rank-*.log")) == [f"rank-{rank}.log" for rank in range(8)]


def test_stages_that_compute_something_else_end_all_ranks_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "misread.py").write_text(MISREAD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    path = tmp_path / "run"
    refused = _train(path, *TYPED, "--model=misread:Net", "--max-updates=3", "--stages=2")
    assert refused.returncode == 2, refused.stderr
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith("drivetrain train: error: --stages 2 would change what --model computes: ")
    assert "the input of layer second is off by " in sentence
    assert "rank" not in sentence
    assert not path.exists()


def test_a_run_of_stages_goes_on_in_one_piece(rank_pool: RankPool, alone: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert _in_stages(rank_pool, path, max_updates=2) == ("finished", 2, 0)
    assert not _are_equal(alone, path)
    assert _alone(path) == ("finished", 3, 0)
    assert _are_equal(alone, path)
    assert losses(path).tobytes() == losses(alone).tobytes()


def test_a_run_in_one_piece_goes_on_in_stages(rank_pool: RankPool, alone: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    _alone(path, max_updates=1)
    assert _in_stages(rank_pool, path) == ("finished", 3, 0)
    assert _are_equal(alone, path)
    assert losses(path).tobytes() == losses(alone).tobytes()


def _wait_for_metrics(process: "subprocess.Popen[str]", path: Path) -> None:
    metrics = path / "metrics.jsonl"
    wait_until(lambda: process.poll() is not None or (metrics.is_file() and metrics.stat().st_size > 0))
    assert process.poll() is None, process.communicate()[1]


def test_a_signal_stops_all_stages_after_a_checkpoint_and_the_run_goes_on(tmp_path: Path) -> None:
    path, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    rare = ["--stages=2", "--checkpoint-every=1000000", "--evaluate-every=1000000"]
    process = subprocess.Popen(
        _command(path, *TYPED, *rare), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    _wait_for_metrics(process, path)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 143, errors
    assert "Traceback" not in errors
    (checkpoint,) = (path / "checkpoints").glob("[0-9]*")
    reached = int(checkpoint.name)
    continued = _train(path, f"--max-updates={reached + 2}")
    assert continued.returncode == 0, continued.stderr
    assert f"continuing after update {reached} " in continued.stdout
    _alone(undisturbed, max_updates=reached + 2, checkpoint_every=1000000, evaluate_every=1000000)
    assert _are_equal(undisturbed, path)
