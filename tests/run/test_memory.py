"""The memory of a whole job: its data lie once on a host, and not in the process that only waits."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.deadlines import HANG_S, wait_until

# More than the libraries themselves take in one block.
SAMPLES, SIDE = 171000, 28
DATA_BYTES = SAMPLES * SIDE * SIDE


@pytest.fixture(scope="module")
def large_mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files in the form of MNIST with 128 MiB of training images."""
    folder = tmp_path_factory.mktemp("large mnist")
    for part, count in (("train", SAMPLES), ("t10k", 100)):
        images = np.full((count, SIDE, SIDE), 9, dtype=np.uint8)
        header = np.array([0x803, count, SIDE, SIDE], dtype=">i4").tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        labels = (np.arange(count) % 10).astype(np.uint8)
        header = np.array([0x801, count], dtype=">i4").tobytes()
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())
    return folder


def _blocks(process: psutil.Process) -> tuple[int, int]:
    """Large blocks of memory of a process: how many of its own, and Pss bytes of shared ones."""
    own, shared_bytes = 0, 0
    for block in process.memory_maps(grouped=False):
        if "memfd:drivetrain-data" in block.path:
            shared_bytes += block.pss
        elif block.path == "[anon]" and block.private_dirty > 0.9 * DATA_BYTES:
            own += 1
    return own, shared_bytes


def test_ranks_and_launcher_hold_the_data_once(large_mnist: Path, tmp_path: Path) -> None:
    options = ["--dataset=mnist", f"--data-dir={large_mnist}", "--device=cpu", "--num-threads=1"]
    layout = ["--replicas=2", "--micro-batch-size=4", "--max-updates=100000", "--log-every=5"]
    run = [f"--output-dir={tmp_path / 'run'}", "--validation=False", "--checkpoints=False"]
    command = [sys.executable, "-m", "drivetrain", "train", *options, *layout, *run]
    launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        metrics = tmp_path / "run" / "metrics.jsonl"
        wait_until(lambda: metrics.is_file() and '"train"' in metrics.read_text())
        time.sleep(0.5)
        process = psutil.Process(launcher.pid)
        found = [_blocks(one) for one in (process, *process.children(recursive=True))]
    finally:
        launcher.terminate()
        launcher.wait(timeout=HANG_S)
    assert sum(shared for _, shared in found) == pytest.approx(DATA_BYTES, rel=0.2)
    assert [own for own, _ in found] == [0] * len(found)
