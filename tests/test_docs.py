"""The commands of the documentation do what it says."""

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from drivetrain.cli.main import main

LADDER = Path(__file__).parents[1] / "docs" / "mnist_ladder.md"
SMALL = ["--limit-train-samples=256", "--limit-validation-samples=32", "--num-epochs=1", "--num-threads=1"]


def _commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"```\n(.*?)```", page.read_text(), re.DOTALL)
    return [line.split()[1:] for block in blocks for line in block.splitlines() if line]


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    folder = tmp_path / "mnist"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for split, count in (("train", 256), ("t10k", 32)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        parts = {
            f"{split}-images-idx3-ubyte.gz": struct.pack(">4i", 2051, *images.shape) + images.tobytes(),
            f"{split}-labels-idx1-ubyte.gz": struct.pack(">2i", 2049, count) + labels.tobytes(),
        }
        for name, content in parts.items():
            (folder / name).write_bytes(gzip.compress(content))
    return folder


def test_the_ladder_has_its_rungs() -> None:
    kinds = [command[0] for command in _commands(LADDER)]
    assert kinds == ["train", "plan", "train", "plan", "train", "verify"]


@pytest.mark.parametrize("number", range(6))
def test_the_commands_of_the_ladder_work(
    number: int, mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [str(mnist) if word == "DIR" else word for word in _commands(LADDER)[number]]
    assert main([*command, *(SMALL if command[0] == "train" else [])]) == 0
