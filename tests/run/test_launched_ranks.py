"""Training as ranks that other programs start: on two hosts, and with one that fails."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import HANG_S
from tests.run.small_runs import SMALL, first_losses_differ, weights
from tests.run.two_hosts import ADDRESSES, run_on_two_hosts, why_not

LENGTH = ["--num-epochs=3"]


def _torchrun(rank: int, *, address: str, port: int, path: Path) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    launcher += [f"--master-addr={address}", f"--master-port={port}", f"--node-rank={rank}"]
    return [*launcher, "-m", "drivetrain", "train", *SMALL, *LENGTH, f"--output-dir={path}"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same updates by one process."""
    path = tmp_path_factory.mktemp("alone") / "run"
    command = [sys.executable, "-m", "drivetrain", "train", *SMALL, *LENGTH, f"--output-dir={path}"]
    assert subprocess.run(command, capture_output=True, timeout=HANG_S, check=False).returncode == 0
    return path


def test_two_hosts_train_together(alone: Path, tmp_path: Path) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    path, port = tmp_path / "run", 29400
    commands = [_torchrun(rank, address=ADDRESSES[0], port=port, path=path) for rank in (0, 1)]
    status, received_bytes = run_on_two_hosts(*commands, folder=tmp_path, timeout_s=HANG_S)
    outputs = [(tmp_path / f"output-{rank}").read_text() for rank in (0, 1)]
    assert status == 0, outputs
    assert "validation_accuracy" in outputs[0]
    assert "validation_accuracy" not in outputs[1]
    assert first_losses_differ(alone, path) < 1e-5
    assert (path / "rank-1.log").is_file()
    # The gradients of nine updates went over the cable.
    assert received_bytes > 9 * sum(values.nbytes for values in weights(alone).values()) / 2


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_two_launchers_on_one_host_train_together(alone: Path, tmp_path: Path) -> None:
    if why_not() is None:
        pytest.skip("hosts with networks of their own are tested here")
    path, port = tmp_path / "run", _free_port()
    hosts = [
        subprocess.Popen(
            _torchrun(rank, address="127.0.0.1", port=port, path=path),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    outputs = [host.communicate(timeout=HANG_S)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], outputs
    assert first_losses_differ(alone, path) < 1e-5
    assert (path / "rank-1.log").is_file()


FAILING = """
import os
from torch import nn

class Odd(nn.Flatten):
    def forward(self, images):
        if self.training and os.environ["SLURM_PROCID"] == "1":
            raise ValueError("odd pixels")
        return super().forward(images)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(Odd(), nn.Linear(64, 10))

    def forward(self, images):
        return self.body(images)
"""


def _slurm(rank: int, *, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def test_a_rank_that_fails_names_itself_and_the_layer(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(FAILING)
    path, port = tmp_path / "run", _free_port()
    command = [sys.executable, "-m", "drivetrain", "train", *SMALL, "--model=odd:Net", f"--output-dir={path}"]
    ranks = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env=_slurm(rank, port=port),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    errors = [rank.communicate(timeout=HANG_S)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1], errors
    sentence = f"rank 1 on {socket.gethostname()} failed: ValueError: odd pixels (in layer body.0 (Odd))"
    assert errors[1].splitlines()[-1] == f"drivetrain train: error: {sentence}"
    assert "Traceback" in errors[1]
    assert "rank 0 on" in errors[0].splitlines()[-1]
    assert "lost its connection to another rank" in errors[0].splitlines()[-1]
    assert (path / "rank-1.log").read_text().splitlines()[-1] == sentence


def test_ranks_that_make_no_whole_replica_are_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "drivetrain", "train", *SMALL, "--stages=3"],
        cwd=tmp_path,
        env=_slurm(0, port=1),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 2
    assert "The 2 ranks that slurm started do not fit a whole number of replicas" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
