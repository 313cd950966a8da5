"""Worked cases of data, checkpoints and command line, by number, through what a user calls."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import drivetrain
from drivetrain.catalogue.data_sets import dataset_info
from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.data.preprocess import Preprocess
from drivetrain.data.source import DataSpec
from drivetrain.data.sources.arrays import as_source
from drivetrain.data.splits import open_data
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from tests.data.sources.cifar_files import write_binary10


def test_case_113_four_epochs_leave_four_checkpoints_that_can_be_measured(tmp_path: Path) -> None:
    drivetrain.train(
        dataset="synthetic",
        dataset_size=32,
        model="toy_model",
        micro_batch_size=16,
        num_epochs=4,
        keep_checkpoints=4,
        output_dir=tmp_path / "run",
        quiet=True,
    )
    rows = drivetrain.evaluate(tmp_path / "run", checkpoint="all")
    assert [row["update"] for row in rows] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--wrong-arg", "1"], id="case 115"),
        pytest.param(["--eight-bit-transfer", "--accelerator-side-preprocess", "False"], id="case 119"),
        pytest.param(["--gradient-accumulation-count", "10", "--global-batch-size", "10"], id="case 120"),
        pytest.param(["--dataset", "foo"], id="case 128 name"),
        pytest.param(["--dataset", "cifar10", "--data-dir", "nowhere"], id="case 128 folder"),
        pytest.param(["--model", "foo"], id="case 93"),
    ],
)
def test_bad_input_ends_with_2(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 2
    assert list(tmp_path.iterdir()) == []


def test_case_122_help_says_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    assert "usage" in capsys.readouterr().out


def test_case_123_a_named_recipe() -> None:
    assert resolve_recipe(config="resnet8_test").recipe.model == "cifar_resnet8"


def test_case_127_the_first_samples_of_cifar10(tmp_path: Path) -> None:
    write_binary10(tmp_path)
    data = open_data(Recipe(dataset="cifar10", data_dir=str(tmp_path), limit_train_samples=3))
    images, labels = data.train.fetch(np.arange(3))
    assert images.shape == (3, 32, 32, 3)
    assert labels.shape == (3,)
    assert data.spec.num_classes == 10


def test_case_129_two_classes_of_one_pixel(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (1, 1)).save(tmp_path / name / "1.png")
    recipe = Recipe(dataset="image-folder", data_dir=str(tmp_path), validation_fraction=0.0)
    data = open_data(recipe)
    images, labels = data.train.fetch(np.arange(2))
    assert data.spec.class_names == ("cat", "dog")
    assert images.shape == (2, 1, 1, 3)
    assert labels.tolist() == [0, 1]


def test_case_130_pixels_are_scaled_by_1_255() -> None:
    spec = DataSpec(channels=1, height=1, width=3, num_classes=2, class_names=("a", "b"), image_dtype="uint8")
    scaled = Preprocess(spec)(torch.tensor([[[[85, 85, 85]]]], dtype=torch.uint8))
    assert scaled.dtype == torch.float32
    assert torch.allclose(scaled, torch.full((1, 1, 1, 3), 1 / 3))


def test_case_131_data_of_another_form_are_refused() -> None:
    with pytest.raises(BadInputError):
        as_source((np.zeros((3, 8, 8, 1), np.uint8),))
    with pytest.raises(BadInputError):
        as_source([1, 2, 3])


@pytest.mark.parametrize(
    ("name", "train", "validation", "classes", "size"),
    [
        pytest.param("imagenet", 1_281_167, 50_000, 1000, 224, id="case 132"),
        pytest.param("cifar10", 50_000, 10_000, 10, 32, id="case 133"),
    ],
)
def test_sizes_of_data_sets(name: str, train: int, validation: int, classes: int, size: int) -> None:
    info = dataset_info(name)
    assert (info.train_samples, info.validation_samples, info.num_classes) == (train, validation, classes)
    assert (info.height, info.width, info.channels) == (size, size, 3)
