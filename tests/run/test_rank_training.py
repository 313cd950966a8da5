"""What is wrong with stages is said by the launching process, before it starts any rank."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.main import main
from drivetrain.run import rank_training as ranks

FIRST, SECOND = "conv2_block1_post_addition_relu", "conv3_block1_post_addition_relu"
BRANCHING = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Flatten(), nn.Linear(64, 10)

    def forward(self, images):
        values = self.first(images)
        if values.sum() > 0:
            values = -values
        return self.second(values)
"""
REFUSED = {
    "unknown layer": (["--pipeline-splits", "no_such_layer"], "--pipeline-splits no_such_layer"),
    "out of order": (["--pipeline-splits", SECOND, FIRST], f"{SECOND} {FIRST}"),
    "a layer twice": (["--pipeline-splits", FIRST, FIRST], f"{FIRST} {FIRST}"),
    "too many stages": (["--stages=99"], "--stages 99"),
    "too many stages of replicas": (["--stages=99", "--replicas=2"], "--stages 99"),
    "grouped accumulation": (
        ["--stages=4", "--pipeline-schedule=grouped", "--gradient-accumulation-count=6"],
        "--gradient-accumulation-count",
    ),
    "grouped global batch": (
        ["--stages=4", "--pipeline-schedule=grouped", "--micro-batch-size=4", "--global-batch-size=24"],
        "--global-batch-size",
    ),
    "a model with branches": (["--stages=2", "--model=branching:Net"], "branching.py"),
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been started; nothing is."""
    started: list[str] = []

    def launch(*_: Any, **__: Any) -> None:
        started.append("ranks")
        pytest.fail("ranks were started")

    def start(*_: Any, **__: Any) -> None:
        started.append("process")
        pytest.fail("a process was started")

    monkeypatch.setattr(ranks, "launch", launch)
    monkeypatch.setattr(subprocess.Popen, "__init__", start)
    return started


@pytest.mark.parametrize("name", REFUSED)
def test_bad_stages_are_refused_before_any_rank_starts(
    name: str,
    started: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, said = REFUSED[name]
    (tmp_path / "branching.py").write_text(BRANCHING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--dataset=digits", "--device=cpu", "--model=cifar_resnet8", *words]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("drivetrain train: error: ")
    assert said in sentence
    assert not started
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "__pycache__"] == ["branching.py"]


def test_good_stages_are_started(started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pytest.fail.Exception, match="ranks were started"):
        main(["train", "--dataset=digits", "--device=cpu", "--pipeline-splits", FIRST, SECOND])
    assert started == ["ranks"]
