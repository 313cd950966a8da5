"""`export --format safetensors` and `--names`: weights alone, also under the names of another library."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.models.libraries.stand_ins import use_stand_ins
from tests.models.weights.plain_resnet import PlainResNet, trained_looking
from tests.run.small_training import train_small_run

from drivetrain.cli.main import main
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.inference.export.export import export_run
from drivetrain.inference.model.restore import find_checkpoint, open_trained_run
from drivetrain.store.checkpoint import load_checkpoint
from drivetrain.store.checkpoint_paths import checkpoint_paths
from drivetrain.store.directory import open_run

QUIET = Reporter(quiet=True)
BRIEF: dict[str, Any] = {"num_epochs": 1, "max_updates": 1, "limit_train_samples": 32}


def start_weights(tmp_path: Path) -> Path:
    path = tmp_path / "theirs.safetensors"
    save_file(trained_looking("resnet18", channels=1).state_dict(), path)
    return path


def refusal(run: Path, output: Path, **options: Any) -> str:
    with pytest.raises(BadInputError) as caught:
        export_run(run, reporter=QUIET, output=output, formats=("safetensors",), **options)
    assert not output.exists()
    return str(caught.value)


@pytest.mark.usefixtures("no_pictures")
def test_a_resnet_fine_tuned_here_goes_back(tmp_path: Path) -> None:
    run, output = tmp_path / "run", tmp_path / "out"
    plain = {"first_shortcut": False}
    options = {**BRIEF, "model": "resnet18", "model_params": plain, "image_size": 16}
    train_small_run(run, **options, pretrained=start_weights(tmp_path))
    result = export_run(run, reporter=QUIET, output=output, formats=("safetensors",), naming="torchvision")
    assert result.weights == output / "model.safetensors"
    assert sorted(path.name for path in output.iterdir()) == ["export.json", "model.safetensors"]
    assert "model.safetensors" in json.loads((output / "export.json").read_text())["files"]
    theirs = PlainResNet("resnet18", channels=1).eval()
    theirs.load_state_dict(load_file(output / "model.safetensors"), strict=True)
    trained = open_trained_run(run, device="cpu")
    trained.load(find_checkpoint(open_run(run), "newest", command="export", warn=print))
    images = torch.randn(2, 1, 16, 16)
    with torch.no_grad():
        expected, found = trained.model.eval()(images), theirs(images)
        fresh = trained_looking("resnet18", channels=1)(images)
    scale = expected.abs().max()
    assert float((found - expected).abs().max() / scale) < 1e-5
    assert float((fresh - expected).abs().max() / scale) > 1e-4


@pytest.mark.usefixtures("no_pictures")
def test_a_shortcut_that_was_trained_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_small_run(run, **BRIEF, model="resnet18", image_size=16, pretrained=start_weights(tmp_path))
    message = refusal(run, tmp_path / "out", naming="timm")
    assert "no place for conv2_block1_0_conv" in message
    assert "--model-params '{first_shortcut: false}'" in message


@pytest.mark.usefixtures("no_pictures")
def test_own_names_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    run, output = tmp_path / "run", tmp_path / "out"
    train_small_run(run, **BRIEF)
    export_run(run, reporter=QUIET, output=output, formats=("safetensors",))
    written = load_file(output / "model.safetensors")
    kept = load_checkpoint(checkpoint_paths(open_run(run).checkpoints)[0]).model
    assert written.keys() == kept.keys()
    assert all(torch.equal(written[name], kept[name]) for name in kept)
    with safe_open(output / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert "--names torchvision is for resnet18 to resnet152" in refusal(
        run, tmp_path / "other", naming="torchvision"
    )


@pytest.mark.usefixtures("no_pictures")
def test_a_library_s_model_keeps_the_library_s_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_stand_ins(monkeypatch)
    run, output = tmp_path / "run", tmp_path / "out"
    train_small_run(run, **BRIEF, model="timm/resnet4", image_size=8)
    export_run(run, reporter=QUIET, output=output, formats=("safetensors",), naming="timm")
    import timm

    theirs = timm.create_model("resnet4", in_chans=1, num_classes=10)
    theirs.load_state_dict(load_file(output / "model.safetensors"), strict=True)
    assert "this run's model is timm/resnet4; --names own works." in refusal(
        run, tmp_path / "other", naming="torchvision"
    )


@pytest.mark.usefixtures("no_pictures")
def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train_small_run(run, **BRIEF)
    assert main(["export", str(run), "--names", "own"]) == 0
    path = run / "export" / "model.safetensors"
    assert f"{path}: the weights under the model's own names" in capsys.readouterr().out
    assert main(["export", str(run), "--names", "own", "--format", "pt2"]) == 2
    assert capsys.readouterr().err.endswith(
        "--names own has no effect on --format pt2, which holds a program; --format safetensors works.\n"
    )
