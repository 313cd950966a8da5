"""Rules for trained weights: the head first, lower rates below, and the network that the weights fit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from drivetrain.auto import speed
from drivetrain.auto.case import Case, DeviceFacts
from drivetrain.auto.decide import decide
from drivetrain.auto.trained_network import network_of_weights
from drivetrain.catalogue.tasks import TaskName
from drivetrain.cli.main import main
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_json
from drivetrain.data.fingerprint.fingerprint import Fingerprint, Spread
from drivetrain.data.source import DataSpec
from drivetrain.recipe.load import read_recipe_yaml, recipe_to_yaml, resolve_recipe
from drivetrain.recipe.schema import Recipe

TRAINED: dict[str, Any] = {"model": "resnet18", "init_from": "runs/first"}
PARTS = ("backbone_rate", "head_first_epochs")


def _fingerprint(task: TaskName = "classification", *, images: int = 640) -> Fingerprint:
    return Fingerprint(
        dataset="image-folder" if task == "classification" else "mask-folder",
        task=task,
        samples={"train": images, "validation": 200},
        measured=images,
        channels=3,
        bits=8,
        height_px=Spread(128, 160, 300),
        width_px=Spread(128, 160, 300),
        class_names=("cat", "dog"),
        class_counts=(images // 2, images - images // 2),
        pixel_shares=() if task == "classification" else (0.8, 0.2),
        objects=None,
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.2, 0.2),
        asymmetry=None,
        unreadable=(),
        duplicates=None,
        groups=None,
    )


def _decide(
    typed: Mapping[str, Any],
    *,
    task: TaskName = "classification",
    images: int = 640,
    sample_s: float = 0.001,
    timed: list[Mapping[str, Any]] | None = None,
) -> Case:
    """What the rules choose where every training sample takes so many seconds, in two minutes."""

    def seconds(decided: Mapping[str, Any]) -> float:
        if timed is not None:
            timed.append(decided)
        return sample_s

    return decide(
        _fingerprint(task, images=images),
        device=DeviceFacts(name="cpu", is_accelerator=False, cores=4),
        typed=typed,
        time=seconds,
        left_s=lambda: 120.0,
    )


def _fine_tune() -> Recipe:
    return resolve_recipe(
        config="fine_tune",
        overrides={"dataset": "image-folder", "data_dir": "photos", **TRAINED},
    ).recipe


STARTS = [
    {"model": "resnet18", "init_from": "runs/first"},
    {"model": "resnet18", "pretrained": "weights.safetensors"},
    {"model": "timm/resnet18", "pretrained": True},
]


@pytest.mark.parametrize("typed", STARTS, ids=["a run", "a file", "a library"])
def test_the_head_is_first_and_the_rest_slower(typed: dict[str, Any]) -> None:
    case = _decide(typed)
    assert [case.value(field) for field in PARTS] == [0.1, 1]
    assert all(case.decisions[field].reason for field in PARTS)


def test_networks_from_scratch_have_no_parts() -> None:
    case = _decide({"model": "resnet18"})
    assert not case.decisions.keys() & set(PARTS)
    assert case.value("num_epochs") > _decide(TRAINED).value("num_epochs")


def test_the_rules_agree_with_the_recipe_fine_tune() -> None:
    recipe = _fine_tune()
    case = _decide({**TRAINED, "micro_batch_size": recipe.micro_batch_size})
    same = [
        *("optimizer", "learning_rate", "backbone_rate", "lr_schedule", "weight_decay"),
        *("label_smoothing", "augment", "random_resized_crop"),
    ]
    assert {field: case.value(field) for field in same} == {field: getattr(recipe, field) for field in same}
    assert case.value("lr_warmup_params")["warmup_epochs"] >= 1
    assert recipe.num_epochs <= case.value("num_epochs") <= 2 * recipe.num_epochs


def test_the_rate_grows_with_the_batch_and_stays_below_that_from_scratch() -> None:
    small, large = (_decide({**TRAINED, "micro_batch_size": size}) for size in (32, 128))
    assert (small.value("learning_rate"), large.value("learning_rate")) == (0.001, 0.002)
    assert _decide({"model": "resnet18", "micro_batch_size": 128}).value("learning_rate") == 0.0028
    of_sgd = {"optimizer": "sgd", "micro_batch_size": 64}
    assert _decide({**TRAINED, **of_sgd}).value("learning_rate") == 0.01
    assert _decide({"model": "resnet18", **of_sgd}).value("learning_rate") == 0.05


def test_many_images_are_fine_tuned_with_adamw_too() -> None:
    trained, fresh = (
        _decide(typed, images=20_000, sample_s=0.0001) for typed in (TRAINED, {"model": "resnet18"})
    )
    assert (trained.value("optimizer"), fresh.value("optimizer")) == ("adamw", "sgd")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("backbone_rate", 0.5),
        ("head_first_epochs", 3),
        ("learning_rate", 0.0003),
        ("num_epochs", 7),
        ("optimizer", "sgd"),
        ("weight_decay", 0.0),
    ],
)
def test_typed_options_stay(field: str, value: object) -> None:
    case = _decide({**TRAINED, field: value})
    assert field not in case.decisions
    assert case.value(field) == value


def test_a_frozen_backbone_needs_no_rate_but_a_frozen_layer_leaves_others() -> None:
    assert not _decide({**TRAINED, "freeze": ("backbone",)}).decisions.keys() & set(PARTS)
    assert _decide({**TRAINED, "freeze": ("conv1*",)}).value("backbone_rate") == 0.1


def test_a_typed_decay_by_layer_is_how_the_rates_fall() -> None:
    case = _decide({**TRAINED, "layer_decay": 0.75})
    assert "backbone_rate" not in case.decisions
    assert case.value("head_first_epochs") == 1


def test_two_passes_are_too_few_for_the_head_alone() -> None:
    assert _decide({**TRAINED, "num_epochs": 2}).value("head_first_epochs") == 0
    assert _decide({**TRAINED, "num_epochs": 3}).value("head_first_epochs") == 1


def test_masks_are_fine_tuned_in_the_same_way() -> None:
    case = _decide({"model": "smp/unet:resnet18", "pretrained": True}, task="segmentation")
    assert [case.value(field) for field in PARTS] == [0.1, 1]
    assert case.value("weight_decay") == 0.01


@pytest.mark.parametrize(("model", "tile"), [("unet", 132), ("unet_same", 128), ("smp/unet:resnet18", 128)])
def test_tiles_have_a_size_that_the_typed_network_takes(model: str, tile: int) -> None:
    assert _decide({"model": model}, task="segmentation").value("tile_size") == tile


def test_a_network_that_was_typed_is_timed_once() -> None:
    timed: list[Mapping[str, Any]] = []
    _decide({"model": "timm/resnet18", "pretrained": True}, timed=timed)
    assert len(timed) == 1


def test_timing_needs_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may not have been fetched yet."""
    monkeypatch.setattr(speed, "_ENOUGH_S", 0.0)
    options = {"dataset": "digits", "model": "cifar_resnet8", "pretrained": "weights-to-come.safetensors"}
    recipe = resolve_recipe(overrides={**options, "device": "cpu", "compile": "off"}, decided={}).recipe
    assert speed.sample_seconds(recipe, reporter=Reporter(quiet=True)) > 0


# The network that weights belong to.


def _a_run(path: Path, *, task: TaskName = "classification", **options: Any) -> Path:
    """What a run's directory says about its network."""
    path.mkdir()
    dataset = "image-folder" if task == "classification" else "mask-folder"
    overrides = {"dataset": dataset, "data_dir": "other", "model": "resnet18", **options}
    (path / "recipe.yaml").write_text(recipe_to_yaml(resolve_recipe(overrides=overrides, decided={}).recipe))
    write_json(path / "identity.json", {})
    spec = DataSpec(
        channels=3,
        height=64,
        width=64,
        num_classes=4,
        class_names=("a", "b", "c", "d"),
        image_dtype="uint8",
        normalisation="per-channel",
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.2, 0.2),
        task=task,
    )
    write_json(path / "data.json", spec.to_json())
    return path


def test_a_run_says_which_network_its_weights_fit(tmp_path: Path) -> None:
    run = _a_run(tmp_path / "first", model_width=32)
    expected = {
        "model": "resnet18",
        "model_width": 32,
        "normalisation": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2], "of": "resnet18"},
    }
    (run / "checkpoints" / "20").mkdir(parents=True)
    for place in (run, run / "checkpoints" / "20"):
        for option in ("init_from", "pretrained"):
            assert network_of_weights({option: str(place)}, dataset="image-folder") == expected


def test_parameters_of_the_network_belong_to_it(tmp_path: Path) -> None:
    run = _a_run(tmp_path / "first", task="segmentation", model="unet_same", model_params={"norm": "batch"})
    found = network_of_weights({"init_from": str(run)}, dataset="mask-folder")
    assert found["model_params"] == {"norm": "batch"}


def test_what_was_typed_is_not_taken_from_the_run(tmp_path: Path) -> None:
    run = str(_a_run(tmp_path / "first", model_width=32))
    assert network_of_weights({"init_from": run, "model": "resnet34"}, dataset="image-folder") == {}
    found = network_of_weights({"init_from": run, "normalisation": "unit"}, dataset="image-folder")
    assert found == {"model": "resnet18", "model_width": 32}
    assert network_of_weights({}, dataset="image-folder") == {}
    assert network_of_weights({"pretrained": True}, dataset="image-folder") == {}


def test_weights_that_name_no_network_ask_for_it(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    for place in (file, tmp_path):
        with pytest.raises(BadInputError, match=r"does not say which network .* --model resnet18"):
            network_of_weights({"init_from": str(place)}, dataset="image-folder")
    missing = {"pretrained": str(tmp_path / "missing")}
    for typed in (missing, {**missing, "model": "resnet18"}):
        with pytest.raises(BadInputError, match="does not exist"):
            network_of_weights(typed, dataset="image-folder")


def test_a_run_of_another_task_is_refused(tmp_path: Path) -> None:
    run = _a_run(tmp_path / "first", task="segmentation", model="unet_same")
    with pytest.raises(BadInputError, match="was trained for segmentation, but --dataset image-folder"):
        network_of_weights({"init_from": str(run)}, dataset="image-folder")


def test_a_network_of_another_program_is_refused(tmp_path: Path) -> None:
    run = _a_run(tmp_path / "first")
    stored = (run / "recipe.yaml").read_text().replace("model: resnet18", "model: __main__:Net")
    (run / "recipe.yaml").write_text(stored)
    with pytest.raises(BadInputError, match="move the network into a file"):
        network_of_weights({"init_from": str(run)}, dataset="image-folder")


# The whole way, on a few small images.


def _folder(path: Path, *, classes: int) -> Path:
    """Images of one colour each, and one validation image that is a copy."""
    draws = np.random.default_rng(classes)
    for split, count in (("train", 16), ("val", 6)):
        for number in range(classes):
            (path / split / f"class{number}").mkdir(parents=True)
            for image in range(count):
                pixels = draws.normal(60 + 60 * number, 20, (20, 20, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(path / split / f"class{number}" / f"{image}.png")
    copied = (path / "train" / "class0" / "0.png").read_bytes()
    (path / "val" / "class0" / "copy.png").write_bytes(copied)
    return path


def test_a_run_is_fine_tuned_without_naming_its_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.auto.choose.sample_seconds", lambda *_, **__: 1e-3)
    common = ["--dataset", "image-folder", "--device", "cpu", "--compile", "off", "--budget", "quick"]
    first, second = tmp_path / "first", tmp_path / "second"
    data = [_folder(tmp_path / f"data{classes}", classes=classes) for classes in (2, 3)]
    assert (
        main(
            [
                *("train", *common, "--data-dir", str(data[0]), "--output-dir", str(first)),
                *("--model", "cifar_resnet20", "--model-width", "8", "--max-updates", "2"),
            ]
        )
        == 0
    )
    tune = ["train", *common, "--data-dir", str(data[1]), "--output-dir", str(second)]
    assert main([*tune, "--init-from", str(first), "--num-epochs", "3"]) == 0
    recipe = read_recipe_yaml(second / "recipe.yaml")
    assert [recipe[field] for field in ("model", "model_width", *PARTS)] == ["cifar_resnet20", 8, 0.1, 1]
    before, after = (json.loads((run / "data.json").read_text()) for run in (first, second))
    assert (before["mean"], before["std"]) == (after["mean"], after["std"])
    comments = (second / "recipe.yaml").read_text()
    assert "# the weights to start from belong to this network" in comments
    said = capsys.readouterr().out
    assert "has 2 classes, but the model has 3: fc_layer starts from newly initialised weights" in said
    copy = data[1] / "val" / "class0" / "copy.png"
    assert f"1 validation image is in the training set too, so the scores are too good ({copy} equals" in said
    assert main([*tune, "--init-from", str(first), "--num-epochs", "3"]) == 0
    assert "is already finished" in capsys.readouterr().out
