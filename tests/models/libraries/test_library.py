"""Every library gives names, facts and models in the same way; the packages are stand-ins."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.models.create import create_model
from drivetrain.models.libraries.library import library_for

pytestmark = pytest.mark.usefixtures("stand_in_libraries")

MODELS: list[tuple[str, TaskName]] = [
    ("timm/resnet4", "classification"),
    ("timm/resnet4.a1_in1k", "classification"),
    ("timm/vit_small", "classification"),
    ("torchvision/resnet4", "classification"),
    ("torchvision/fcn_small", "segmentation"),
    ("hf/vit", "classification"),
    ("hf/segformer", "segmentation"),
    ("smp/unet:resnet4", "segmentation"),
]


def _facts(name: str, **params: Any) -> Any:
    library, own_name = library_for(name)
    return library.facts(own_name, params=params)


def _logits(name: str, *, channels: int = 3, size: int = 32, classes: int = 5, **params: Any) -> torch.Tensor:
    model = create_model(name, channels=channels, image_size=size, num_classes=classes, **params)
    output = model(torch.zeros(2, channels, size, size))
    assert isinstance(output, torch.Tensor)
    return output


@pytest.mark.parametrize(("name", "task"), MODELS)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_model_returns_logits_for_the_datas_shape(name: str, task: TaskName, channels: int) -> None:
    pixels = (32, 32) if task == "segmentation" else ()
    assert _logits(name, channels=channels).shape == (2, 5, *pixels)


@pytest.mark.parametrize(("name", "task"), MODELS)
def test_the_seed_decides_the_weights(name: str, task: TaskName) -> None:
    one, same, other = (create_model(name, num_classes=3, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(("name", "task"), MODELS)
def test_parameters_have_the_librarys_names(name: str, task: TaskName) -> None:
    heads = ("fc.", "head.", "classifier.", "decode_head.", "segmentation_head.")
    assert [key for key in create_model(name).state_dict() if key.startswith(heads)]


@pytest.mark.parametrize(("name", "task"), MODELS)
def test_facts_are_the_librarys(name: str, task: TaskName) -> None:
    facts = _facts(name)
    assert (facts.name, facts.task, facts.channels) == (name, task, 3)
    assert len(facts.mean) == len(facts.std) == 3


def test_facts_of_single_libraries() -> None:
    assert _facts("timm/resnet4").image_size == 24
    assert _facts("timm/resnet4").mean == (0.5, 0.4, 0.3)
    assert _facts("timm/resnet4").origin == "timm/resnet4.a1_in1k"
    assert _facts("timm/resnet8").min_image_size == 8
    assert _facts("torchvision/resnet4").image_size == 24
    assert _facts("torchvision/fcn_small").image_size == 40
    assert _facts("torchvision/resnet4").min_image_size == 8
    assert _facts("hf/vit").image_size == 16
    assert _facts("smp/unet:resnet4").image_size_step == 1
    assert _facts("smp/fpn:resnet4").image_size_step == 32
    assert _facts("smp/fpn:resnet4", encoder_depth=3).image_size_step == 8
    assert _facts("smp/unet:inceptionv4").mean == (0.5, 0.5, 0.5)


def test_params_go_to_the_library() -> None:
    assert create_model("timm/resnet4", width=7).get_parameter("fc.weight").shape == (1000, 7)
    assert create_model("hf/vit", hidden_size=8).get_parameter("classifier.weight").shape == (2, 8)
    # A configuration names the blocks that it returns; those of another depth have other names.
    assert create_model("hf/vit", num_hidden_layers=2)
    with pytest.raises(BadInputError, match=r"failed: ValueError: out_features must be"):
        create_model("hf/vit", num_hidden_layers=2, out_features=["stage3"])
    with pytest.raises(BadInputError, match=r"--model timm/resnet4 failed: TypeError: .*widht"):
        create_model("timm/resnet4", widht=7)
    with pytest.raises(BadInputError, match=r"width:7 has no value; write '\{width: \.\.\.\}'"):
        _facts("timm/resnet4", **{"width:7": None})
    with pytest.raises(BadInputError, match=r"hidden_sise is not a key .* Did you mean hidden_size\?"):
        create_model("hf/vit", hidden_sise=8)


@pytest.mark.parametrize(
    ("name", "param", "option"),
    [
        ("timm/resnet4", {"pretrained": True}, "--pretrained"),
        ("timm/resnet4", {"in_chans": 1}, "--channels"),
        ("torchvision/resnet4", {"weights": "DEFAULT"}, "--pretrained"),
        ("hf/vit", {"num_labels": 3}, "--num-classes"),
        ("smp/unet:resnet4", {"encoder_weights": "imagenet"}, "--pretrained"),
    ],
)
def test_a_keyword_that_is_an_option_is_refused(name: str, param: dict[str, Any], option: str) -> None:
    with pytest.raises(BadInputError, match=f"does not belong in --model-params; use {option}"):
        create_model(name, **param)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("timm/resnet5", r"not a model of timm\. Did you mean timm/resnet"),
        ("timm/resnet4.a2_in1k", r"Did you mean timm/resnet4\.a1_in1k\?"),
        ("torchvision/resnet5", r"Did you mean torchvision/resnet4\?"),
        ("torchvision/fasterrcnn_small", "is a model for detection.* not supported"),
        ("hf/vitt", r"Did you mean hf/vit\?"),
        ("smp/unet", "names no encoder; write smp/ARCHITECTURE:ENCODER"),
        ("smp/unte:resnet4", r"no architecture unte\. Did you mean smp/unet:resnet4"),
        ("smp/unet:resnet5", r"no encoder resnet5\. Did you mean smp/unet:resnet4"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        create_model(name)


@pytest.mark.parametrize("where", ["folder", "cache"])
def test_a_folder_or_a_cached_repository_is_a_model(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "some--vit"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "vit", "hidden_size": 6, "image_size": 12}))
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7], "size": {"height": 20}})
    )
    name = f"hf/{folder}" if where == "folder" else "hf/some/vit"
    facts = _facts(name)
    assert (facts.image_size, facts.mean, facts.std) == (20, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    assert create_model(name).get_parameter("classifier.weight").shape == (2, 6)


def test_a_folder_with_a_model_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(BadInputError, match="is a bert, which neither classifies nor segments images"):
        _facts(f"hf/{tmp_path}")
