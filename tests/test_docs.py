"""The commands of the documentation do what it says."""

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from drivetrain.cli.main import main

ROOT = Path(__file__).parents[1]
LADDER = ROOT / "docs" / "mnist_ladder.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
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


def _rows_below(page: Path, heading: str) -> list[str]:
    table = page.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ")][2:]


def _measured_rows() -> list[str]:
    return _rows_below(ROOT / "docs" / "results.md", "Measured")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in DOCS)])
def test_every_link_leads_to_a_file(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
    broken = [link for link in links if "://" not in link and not ((ROOT / page).parent / link).exists()]
    assert broken == []


def test_the_readme_is_short_and_has_five_headline_figures() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 6000
    assert len(_rows_below(ROOT / "README.md", "Headline figures")) == 5


def test_every_figure_names_the_file_that_holds_it() -> None:
    rows = [*_measured_rows(), *_rows_below(ROOT / "README.md", "Headline figures")]
    assert len(rows) > 10
    for row in rows:
        files = re.findall(r"\]\((?:\.\./)?(benchmarks/results/[^)]+)\)", row)
        assert files, row
        for file in files:
            assert (ROOT / file).is_file(), file


def test_nothing_is_measured_twice() -> None:
    subjects = [row.split(" | ")[0] for row in _measured_rows()]
    assert len(set(subjects)) == len(subjects)
    steps = [re.findall(r"`(\w+)` (?:\(|at )(\d+)[^`)]*?batch (\d+)", subject) for subject in subjects]
    found = [step for part in steps for step in part]
    assert len(set(found)) == len(found)
