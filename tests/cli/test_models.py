import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain.catalogue.models import model_names
from drivetrain.cli import models
from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError


def run(*words: str) -> int:
    parser = argparse.ArgumentParser(prog="drivetrain models")
    models.add_arguments(parser)
    return models.run(parser.parse_args(words))


def test_all_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["model", *model_names()]
    assert "3 x 32 x 32" in lines[1]


def test_a_pattern_narrows_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    run("MNIST")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["model", "mnist_cnn"]


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    run("toy*", "--json")
    (info,) = json.loads(capsys.readouterr().out)
    assert (info["name"], info["min_image_size"]) == ("toy_model", 27)


def test_show_prints_every_layer_in_full_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "cifar_resnet56") == 0
    *table, totals = capsys.readouterr().out.splitlines()
    assert max(map(len, table)) <= 80
    assert table[0].split() == ["layer", "kind", "output", "parameters", "FLOPs"]
    assert table[1].split() == ["conv1_conv", "Conv2d", "16", "x", "32", "x", "32", "432", "885", "k"]
    assert "conv4_block9_post_addition_relu" in [line.split()[0] for line in table]
    assert totals.startswith("total: 853018 parameters, 853018 trainable; 4064 running statistics; ")


def test_long_names_are_never_cropped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a_layer_whose_name_is_much_longer_than_what_fits_on_a_screen_of_eighty_columns_beside_others"
    source = (
        "from collections import OrderedDict\nfrom torch import nn\n"
        f"def net():\n    return nn.Sequential(OrderedDict({name}=nn.Conv2d(3, 2, 1)))\n"
    )
    (tmp_path / "long_named_models.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    run("show", "long_named_models:net", "--channels", "3", "--image-size", "4")
    assert name in capsys.readouterr().out


def test_show_as_json_for_another_shape(capsys: pytest.CaptureFixture[str]) -> None:
    run("show", "toy_model", "--channels", "1", "--image-size", "28", "--num-classes", "10", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["model"], shown["channels"], shown["image_size"]) == ("toy_model", 1, 28)
    assert shown["totals"]["parameters"] == 170
    assert shown["layers"][0]["output_shape"] == [4, 26, 26]


def test_show_gives_an_unpadded_model_its_margin(capsys: pytest.CaptureFixture[str]) -> None:
    run("show", "unet", "--image-size", "4", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["image_size"], shown["totals"]["parameters"]) == (4, 31030658)
    assert shown["layers"][0]["output_shape"] == [64, 186, 186]
    assert shown["layers"][-1]["output_shape"] == [2, 4, 4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show"], "exactly one NAME"),
        (["show", "a", "b"], "exactly one NAME"),
        (["mnist", "toy"], "one PATTERN"),
        (["nothing_like_it"], "matches no model"),
        (["cifar_resnet9"], r"Did you mean cifar_resnet8\?"),
        (["--image-size", "32"], "--image-size has no effect without show NAME"),
        (["show", "mnist_cn"], r"Did you mean mnist_cnn\?"),
        (["show", "mnist_cnn", "--image-size", "8"], r"--image-size 8 .* --image-size 10"),
        (["show", "unet", "--image-size", "512"], r"512 pixels do not fit unet; .* 500 and 516"),
        (["show", "mnist_cnn", "--channels", "0"], "--channels 0 must be at least 1"),
        (["show", "my_models:net"], "--channels 3 --image-size 32"),
    ],
)
def test_errors(words: list[str], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        run(*words)


@pytest.mark.parametrize(
    "words", [[], ["*resnet*"], ["foo"], ["show", "mnist_cn"], ["show", "toy_model", "--image-size", "3"]]
)
def test_listing_and_errors_do_not_import_torch(words: list[str]) -> None:
    script = (
        "import argparse, sys\n"
        "from drivetrain.cli import models\n"
        "from drivetrain.core.errors import BadInputError\n"
        "parser = argparse.ArgumentParser()\nmodels.add_arguments(parser)\n"
        "try: models.run(parser.parse_args(sys.argv[1:]))\n"
        "except BadInputError: pass\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, *words], check=True, capture_output=True)


def test_list_is_a_word_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list"]) == 0
    listed = capsys.readouterr().out
    assert main(["models"]) == 0
    assert capsys.readouterr().out == listed
    assert main(["recipes"]) == 0
    assert "mnist_tutorial" in capsys.readouterr().out
