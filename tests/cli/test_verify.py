"""`drivetrain verify`, as a user calls it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.main import main

Capture = pytest.CaptureFixture[str]

NOISY = """
import torch
from torch import nn

class Noisy(nn.Module):
    def __init__(self, channels, image_size, num_classes):
        super().__init__()
        self.line = nn.Linear(channels * image_size**2, num_classes)

    def forward(self, images):
        return self.line(images.flatten(1)) * (1 + len(images))
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _json(capsys: Capture, *arguments: str, status: int = 0) -> dict[str, Any]:
    assert main(["verify", *arguments, "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dataset", "digits", "--model", "cifar_resnet8"],
        [
            "--model",
            "unet_same",
            "--model-width",
            "2",
            "--model-params",
            "{depth: 2, norm: batch}",
            "--image-size",
            "16",
        ],
    ],
    ids=["classifier", "segmentation"],
)
def test_two_ranks_compute_what_one_process_computes(
    tmp_path: Path, capsys: Capture, arguments: list[str]
) -> None:
    layouts = "replicas=2;replicas=2,accumulation=2,group=2"
    found = _json(capsys, *arguments, "--layouts", layouts, "--updates", "3")
    assert found["ok"]
    assert [(entry["layout"], entry["dtype"]) for entry in found["layouts"]] == [
        (layout, dtype) for dtype in ("float32", "float64") for layout in layouts.split(";")
    ]
    for entry in found["layouts"]:
        assert (entry["schedule"], entry["recomputation"], entry["ok"]) == ("none", False, True)
        if entry["dtype"] == "float64":
            assert max(entry["max_relative_gradient_error"], entry["batch_norm_error"]) <= 1e-10
    assert found["reference"]["normalised_set"] == 4
    assert list(tmp_path.iterdir()) == []


def test_stages_of_one_process_compute_what_the_whole_model_computes(capsys: Capture) -> None:
    layouts = "accumulation=4,stages=2,schedule=grouped,recomputation=true,processes=1"
    own = ["--dataset", "digits", "--model", "cifar_resnet8", "--layouts", layouts]
    found = _json(capsys, *own, "--updates", "2", "--dtype", "float64")
    (entry,) = found["layouts"]
    assert (
        entry.items()
        >= {
            "layout": layouts,
            "schedule": "grouped",
            "recomputation": True,
            "max_relative_gradient_error": 0.0,
            "loss_error": 0.0,
            "ok": True,
        }.items()
    )
    assert found["reference"]["schedule"] == "none"
    assert main(["verify", *own, "--updates", "1", "--dtype", "float64"]) == 0
    assert layouts in capsys.readouterr().out


def test_a_model_that_depends_on_the_cut_fails_and_the_worst_tensor_is_named(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "noisy_model.py").write_text(NOISY)
    monkeypatch.syspath_prepend(tmp_path)
    own = ["--model", "noisy_model:Noisy", "--dataset", "digits", "--layouts", "replicas=2", "--updates", "1"]
    assert main(["verify", *own, "--dtype", "float32"]) == 1
    shown = capsys.readouterr().out
    assert "DIFFERENT" in shown
    assert "negative control  float32" in shown
    assert "not certified: replicas=2 in float32: the gradient of line.weight differs by" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--layouts", "replica=2"], "Did you mean replicas?"),
        (["--updates", "0"], "--updates 10 works"),
        (["--dtype", "float16"], "must be one of"),
        (["--precision", "16.32"], "leave it out"),
        (["--dataset", "digits", "--layouts", "replicas=5"], "--global-batch-size 10 works"),
        (["--dataset", "digits", "--model", "mnist_cn"], "mnist_cnn"),
        (["--layouts", "stages=2,mapping=0 1 1"], "names 3 devices for 2 stages"),
        (["--dataset", "digits", "--pipeline-splits", "conv9"], "the model has no such layer"),
        (["--dataset", "digits", "--layouts", "stages=2,schedule=grouped"], "needs a multiple of 4"),
    ],
)
def test_bad_input_is_one_sentence(capsys: Capture, arguments: list[str], said: str) -> None:
    assert main(["verify", *arguments]) == 2
    written = capsys.readouterr()
    assert said in written.err
    assert written.err.count("\n") == 1


def test_a_wrong_layout_is_refused_without_torch() -> None:
    code = (
        "import sys; from drivetrain.cli.main import main;"
        "assert main(['verify', '--layouts', 'x']) == 2; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_quick_verification_compares_two_updates(capsys: Capture) -> None:
    own = ["--dataset", "digits", "--model", "mnist_cnn", "--image-size", "12", "--quick"]
    found = _json(capsys, *own, "--layouts", "accumulation=2")
    assert found["ok"]
    assert (found["reference"]["updates"], found["reference"]["global_batch"]) == (2, 4)
    assert [one["dtype"] for one in found["layouts"]] == ["float32"]
    typed = _json(capsys, *own, "--layouts", "accumulation=2", "--updates", "3", "--dtype", "both")
    assert typed["reference"]["updates"] == 3
    assert [one["dtype"] for one in typed["layouts"]] == ["float32", "float64"]
