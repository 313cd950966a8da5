"""`drivetrain.train` in Python with replicas and a module of the user's own, whose ranks share nothing."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.deadlines import HANG_S

SCRIPT = """
import sys

import numpy as np
import torch

import drivetrain
from tests.run.moving_models import Moving

OPTIONS = dict(
    micro_batch_size=4, global_batch_size=8, num_epochs=100, max_updates=4, lr_schedule="const",
    validation=False, device="cpu", num_threads=1, quiet=True,
)

if __name__ == "__main__":
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(40) % 10
    torch.manual_seed(5)
    model = Moving()
    drivetrain.train(
        model=model, data=(images, labels), replicas=int(sys.argv[2]), output_dir=sys.argv[1], **OPTIONS
    )
    assert not any(tensor.is_shared() for tensor in [*model.buffers(), *model.parameters(), model.plain])
    assert model.unsaved.abs().sum() > 0
    # The passes of the first replica in four updates.
    assert float(model.plain) == 8 // int(sys.argv[2])
"""


def _state(tmp_path: Path, name: str, *, replicas: int) -> dict[str, NDArray[Any]]:
    script, run = tmp_path / "script.py", tmp_path / name
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(run), str(replicas)]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_S, check=False, env=_environment(root)
    )
    assert done.returncode == 0, done.stderr
    checkpoint = run / "checkpoints" / "4"
    return load_file(checkpoint / "model.safetensors") | load_file(checkpoint / "buffers.safetensors")


def _environment(root: str) -> dict[str, str]:
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def test_buffers_move_by_one_ranks_own_samples(tmp_path: Path) -> None:
    """Micro-batches 0, 2, 4, 6 are the first replica's; its means are those of these alone."""
    found = [_state(tmp_path, f"replicas {turn}", replicas=2) for turn in range(2)]
    alone = _state(tmp_path, "alone", replicas=1)
    for name, value in found[0].items():
        assert value.tobytes() == found[1][name].tobytes(), name
    tracked = "body.1.num_batches_tracked"
    assert int(found[0][tracked]) == int(alone[tracked]) == 4
    # Four moves of a first replica, and eight of a process that has all micro-batches.
    constant = {"mean": 0.1, "unsaved": 0.3}
    for name, share in constant.items():
        replica, process = (1 - (1 - share) ** moves for moves in (4, 8))
        ratio = found[0][name].mean() / alone[name].mean()
        assert ratio == pytest.approx(replica / process, rel=0.05)
