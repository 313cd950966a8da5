"""Training on several ranks, from the command line and from Python, through real processes."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.deadlines import HANG_S, wait_until
from tests.run.small_runs import SMALL, first_losses_differ, weights


def _command(path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "drivetrain", "train", *SMALL, f"--output-dir={path}", *options]


def _train(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(path, *options), capture_output=True, text=True, timeout=HANG_S, check=False
    )


def _events(path: Path, kind: str) -> list[dict[str, Any]]:
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def _are_equal(one: Path, other: Path) -> bool:
    expected, found = weights(one), weights(other)
    return all(found[key].tobytes() == value.tobytes() for key, value in expected.items())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine updates by one process."""
    path = tmp_path_factory.mktemp("alone") / "run"
    assert _train(path, "--num-epochs=3").returncode == 0
    return path


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same nine updates by two replicas."""
    path = tmp_path_factory.mktemp("two") / "run"
    finished = _train(path, "--num-epochs=3", "--replicas=2")
    assert finished.returncode == 0, finished.stderr
    return path


def test_two_replicas_train_what_one_process_trains(alone: Path, on_two: Path) -> None:
    assert first_losses_differ(alone, on_two) < 1e-5
    for kind in ("train", "validation"):
        for one, two in zip(_events(alone, kind), _events(on_two, kind), strict=True):
            assert (two["update"], two["epoch"]) == (one["update"], one["epoch"])
    assert _events(on_two, "validation")[-1]["validation_samples"] == 21
    assert (on_two / "rank-1.log").is_file()


def test_the_summary_tells_how_well_replicas_worked_together(on_two: Path) -> None:
    summary = _events(on_two, "summary")[-1]
    assert summary["replicas"] == 2
    assert summary["images_per_second_per_replica"] == pytest.approx(
        summary["images_per_second"] / 2, abs=0.1
    )
    assert 0 <= summary["computing_share"] <= 1


def test_a_run_goes_on_with_another_number_of_replicas(alone: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert _train(path, "--num-epochs=3", "--max-updates=5", "--lr-schedule=const").returncode == 0
    finished = _train(path, "--num-epochs=3", "--max-updates=9", "--lr-schedule=const", "--replicas=2")
    assert finished.returncode == 0, finished.stderr
    uncut = tmp_path / "uncut"
    assert _train(uncut, "--num-epochs=3", "--lr-schedule=const").returncode == 0
    before, after = (np.load(run / "updates.npz")["loss"] for run in (uncut, path))
    assert np.array_equal(before[:5], after[:5])
    assert abs(before[5] - after[5]) < 1e-6
    changed = _train(path, "--num-epochs=3", "--replicas=2", "--global-batch-size=16")
    assert changed.returncode == 2
    assert "--global-batch-size" in changed.stderr


def _ranks_of(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    found = psutil.Process(process.pid).children(recursive=True)
    return [child for child in found if "spawn_main" in " ".join(child.cmdline())]


def _start(path: Path, *options: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        _command(path, *options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    metrics = path / "metrics.jsonl"
    wait_until(lambda: process.poll() is not None or (metrics.is_file() and metrics.stat().st_size > 0))
    assert process.poll() is None, process.communicate()[1]
    return process


def test_a_killed_rank_ends_all_and_the_rerun_has_the_sameweights(tmp_path: Path) -> None:
    path, uncut = tmp_path / "run", tmp_path / "uncut"
    length = ["--num-epochs=25", "--replicas=2", "--logs-per-epoch=1", "--evaluate-every=1000"]
    process = _start(path, *length)
    ranks = _ranks_of(process)
    assert len(ranks) == 2
    ranks[1].kill()
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 1
    assert "SIGKILL" in errors.splitlines()[-1]
    assert socket.gethostname() in errors.splitlines()[-1]
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
    assert _train(path, *length).returncode == 0
    assert _train(uncut, *length).returncode == 0
    assert _are_equal(uncut, path)


def test_a_signal_stops_all_ranks_after_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = _start(path, "--num-epochs=100000", "--replicas=2", "--checkpoint-every=1000000")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 143, errors
    assert "Traceback" not in errors
    assert len(list((path / "checkpoints").iterdir())) >= 1


def test_ranks_that_fail_start_again_from_the_newest_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    options = ["--num-epochs=25", "--replicas=2", "--evaluate-every=1000", "--max-restarts=1"]
    process = _start(path, *options)
    _ranks_of(process)[0].kill()
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, errors
    assert "restart 1 of 1" in errors
    assert _events(path, "summary")[-1]["update"] == 75


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--replicas=3", "--dbn-replica-group-size=2"], "--dbn-replica-group-size"),
        (["--replicas=2", "--validation-replicas=3"], "--validation-replicas 2"),
        (["--replicas=2", "--devices=3"], "--devices"),
        (["--replicas=2", "--global-batch-size=8"], "--global-batch-size 16"),
        (["--replicas=2", "--stop-at=dice=0.9"], "--stop-at"),
    ],
)
def test_bad_input_is_said_once_and_writes_nothing(tmp_path: Path, options: list[str], words: str) -> None:
    refused = _train(tmp_path / "run", *options)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import numpy as np, torch, drivetrain
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 3)
    def forward(self, images):
        return self.layer(images.flatten(1))

if __name__ == "__main__":
    torch.manual_seed(0)
    images = np.random.default_rng(0).random((24, 2, 2, 3), dtype=np.float32)
    labels = np.arange(24) % 3
    net = Net()
    before = net.layer.weight.clone()
    result = drivetrain.train(model=net, data=(images, labels), replicas=REPLICAS, micro_batch_size=4,
        global_batch_size=8, max_updates=1, output_dir="run-REPLICAS", quiet=True, device="cpu",
        num_threads=1)
    assert not torch.equal(before, net.layer.weight)
    assert result.status == "finished" and result.updates == 1
    np.save("weights-REPLICAS.npy", net.layer.weight.detach().numpy())
"""


def test_a_model_and_data_made_in_python_train_on_two_replicas(tmp_path: Path) -> None:
    for replicas in (1, 2):
        script = tmp_path / f"script{replicas}.py"
        script.write_text(SCRIPT.replace("REPLICAS", str(replicas)))
        run = subprocess.run(
            [sys.executable, script.name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert run.returncode == 0, run.stderr
    one, two = (np.load(tmp_path / f"weights-{replicas}.npy") for replicas in (1, 2))
    assert np.abs(one - two).max() < 1e-6


def test_crossval_trains_each_fold_on_all_replicas(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "drivetrain", "crossval", *SMALL, "--folds=2", "--num-epochs=1"]
    found = {}
    for replicas in (1, 2):
        path = tmp_path / f"job-{replicas}"
        job = subprocess.run(
            [*command, f"--replicas={replicas}", f"--output-dir={path}"],
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert job.returncode == 0, job.stderr
        found[replicas] = json.loads((path / "crossval.json").read_text())["statistics"]["last"]
    assert found[1]["loss"]["mean"] == pytest.approx(found[2]["loss"]["mean"], abs=1e-5)
