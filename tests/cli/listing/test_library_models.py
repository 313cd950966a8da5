"""`drivetrain models --from LIBRARY` and `models show LIBRARY/NAME`; the packages are stand-ins."""

import json

import pytest

from drivetrain.cli.main import main

pytestmark = pytest.mark.usefixtures("stand_in_libraries")


def _printed(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["models", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--from", "timm", "vit_*"], ["vit_*", "--from", "timm"], ["vit", "--from", "timm"]]
)
@pytest.mark.parametrize("lead", [[], ["list"]])
def test_the_models_that_match(words: list[str], lead: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    lines = _printed(*lead, *words, capsys=capsys).splitlines()
    assert lines[0].split() == ["model", "task", "image", "description"]
    assert [line.split()[0] for line in lines[1:]] == ["timm/vit_small"]


@pytest.mark.parametrize(
    ("library", "names"),
    [
        ("timm", ["timm/resnet4", "timm/resnet8", "timm/vit_small"]),
        ("torchvision", ["torchvision/resnet4", "torchvision/fcn_small"]),
        ("hf", ["hf/segformer", "hf/vit"]),
        ("smp", ["smp/unet:resnet4", "smp/unet:inceptionv4", "smp/fpn:resnet4", "smp/fpn:inceptionv4"]),
    ],
)
def test_json_holds_the_facts(library: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_printed("--from", library, "--json", capsys=capsys))
    assert [model["name"] for model in found] == names
    assert all(len(model["mean"]) == 3 for model in found)


def test_a_dot_lists_the_weights_of_an_architecture(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_printed("--from", "timm", "resnet4.*", "--json", capsys=capsys))
    assert [model["name"] for model in found] == ["timm/resnet4.a1_in1k"]


def test_a_model_is_shown_with_what_its_library_expects(capsys: pytest.CaptureFixture[str]) -> None:
    text = _printed("show", "timm/resnet4", "--num-classes", "3", capsys=capsys)
    assert "conv1" in text
    assert "input size: 24x24" in text
    assert "normalisation: mean 0.5, 0.4, 0.3; deviation 0.25, 0.2, 0.1" in text
    assert "weights: timm/resnet4.a1_in1k, licence apache-2.0" in text
    shown = json.loads(_printed("show", "smp/fpn:resnet4", "--json", capsys=capsys))
    assert shown["library"]["image_size_step"] == 32


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--from", "tim"], "--from tim is not a known library of models. Did you mean timm?"),
        (["--from", "timm", "resnex4"], "resnex4 matches no model of timm. Did you mean resnet4"),
        (["show", "resnet4", "--from", "timm"], "--from has no effect on show; write show timm/NAME."),
        (["--from", "timm", "a", "b"], "models takes one PATTERN, not 2"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", *words]) == 2
    assert sentence in capsys.readouterr().err
