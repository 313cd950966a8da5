"""Every source travels to the device as it is stored, or prepared, and becomes the same batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from drivetrain.assembly.training_feed import augmentation_of, training_feed
from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.data.commands.write_pack import PackRequest, write_pack
from drivetrain.data.feeds.feed import StreamFeed
from drivetrain.data.feeds.host_batch import HostPreparation
from drivetrain.data.feeds.micro_batch import Feed
from drivetrain.data.preprocess import Preprocess, build_preparation, channels_last_view
from drivetrain.data.source import ArraySource, DataSpec, DataSplits
from drivetrain.data.splits import open_data, split_user_data
from drivetrain.devices.device import choose_device
from drivetrain.recipe.schema import Recipe
from tests.data.folders import write_images
from tests.data.helpers import collect, make_order, same_batches
from tests.data.sources.cifar_files import write_binary10, write_binary100
from tests.data.sources.isbi_files import write_isbi
from tests.data.sources.mnist_files import write_mnist
from tests.run.segments import write_shapes

Write = Callable[[Path], object]


def _folder(path: Path) -> None:
    write_images(path / "train", {"a": 5, "b": 6}, sizes=((20, 30), (40, 25)))
    write_images(path / "val", {"b": 2}, sizes=((20, 30),))


def _pack(path: Path) -> None:
    _folder(path / "source")
    write_pack(path / "source", path / "pack", request=PackRequest())


_CROPPED: dict[str, Any] = {"image_size": 16, "augment": True, "random_resized_crop": 0.3}
_BENT: dict[str, Any] = {"model": "unet_same", "augment": True, "rotate": 30, "gamma": 0.2, "noise": 0.1}
_CHANGED: dict[str, Any] = {"augment": True, "rand_augment": 1, "mixup": 0.3}
SOURCES: dict[str, tuple[Write, dict[str, Any]]] = {
    "cifar10": (write_binary10, _CHANGED),
    "cifar100": (write_binary100, {"image_size": 20}),
    "digits": (lambda _: None, _CHANGED),
    "image-folder": (_folder, _CROPPED),
    "imagenet": (_folder, {**_CROPPED, "mixup": 0.3}),
    "isbi2012": (write_isbi, {**_BENT, "image_size": 24}),
    "mask-folder": (write_shapes, {**_BENT, "image_size": 24, "border_weight": 5.0}),
    "mask-folder tiles": (write_shapes, {**_BENT, "tile_size": 16}),
    "mnist": (write_mnist, {"image_size": 14}),
    "packed": (_pack, _CROPPED),
    "synthetic": (lambda _: None, {**_CHANGED, "dataset_size": 12}),
    "synthetic-em": (lambda _: None, {**_BENT, "image_size": 32, "dataset_size": 12}),
}


def _recipe(name: str, folder: Path, **options: Any) -> Recipe:
    dataset = name.split()[0]
    data_dir = folder / "pack" if dataset == "packed" else folder
    generated = dataset in ("digits", "synthetic", "synthetic-em")
    place = {} if generated else {"data_dir": str(data_dir)}
    return Recipe(dataset=dataset, validation_fraction=0.0, device="cpu", **{**place, **options})


def _feed(recipe: Recipe, data: DataSplits, **how: Any) -> Feed:
    preprocess = build_preparation(recipe, data.spec)
    streamed = recipe.model_copy(update={"data_placement": "stream", "num_workers": 0, **how})
    feed, warnings = training_feed(
        streamed,
        data=data,
        order=make_order(len(data.train), global_batch=2, remainder="carry"),
        preprocess=preprocess,
        augmentation=augmentation_of(streamed, data, preprocess),
        micro_batch_size=1,
        device=choose_device("cpu"),
    )
    assert warnings == []
    return feed


ON_HOST = {"accelerator_side_preprocess": False}
ON_DEVICE = {"accelerator_side_preprocess": True}
EIGHT_BIT = {**ON_DEVICE, "eight_bit_transfer": True}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", SOURCES)
def test_host_and_device_prepare_the_same_bits(tmp_path: Path, name: str) -> None:
    write, options = SOURCES[name]
    write(tmp_path)
    recipe = _recipe(name, tmp_path, **options)
    data = open_data(recipe)
    on_host = collect(_feed(recipe, data, **ON_HOST), range(3))
    for how in (ON_DEVICE, EIGHT_BIT):
        assert same_batches(collect(_feed(recipe, data, **how), range(3)), on_host)
    other_seed = recipe.model_copy(update={"seed": 99, "augment": True})
    assert not same_batches(collect(_feed(other_seed, data, **EIGHT_BIT), range(3)), on_host)


@pytest.mark.parametrize("name", SOURCES)
def test_what_travels(tmp_path: Path, name: str) -> None:
    write, options = SOURCES[name]
    write(tmp_path)
    recipe = _recipe(name, tmp_path, **options)
    data = open_data(recipe)
    for how, dtype in ((ON_HOST, torch.float32), (ON_DEVICE, torch.float32), (EIGHT_BIT, torch.uint8)):
        feed = _feed(recipe, data, **how)
        assert isinstance(feed, StreamFeed)
        assert feed.collect(0).tensors[0].dtype == dtype


def _arrays(images: np.ndarray) -> DataSplits:
    labels = np.arange(len(images), dtype=np.int64) % 2
    return split_user_data(Recipe(device="cpu"), train=(images, labels))


def test_arrays_of_python() -> None:
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3)).astype(np.uint8)
    recipe, data = Recipe(device="cpu", mixup=0.2, image_size=12), _arrays(images)
    on_host, there = (collect(_feed(recipe, data, **how), range(3)) for how in (ON_HOST, EIGHT_BIT))
    assert same_batches(on_host, there)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cases_80_and_82_only_images_of_8_bits_travel_as_such(dtype: str) -> None:
    """Elsewhere floats are cut to 8 bits, and those outside wrap around; here they are refused instead."""
    data = _arrays(np.linspace(-1, 256, 9 * 8 * 8, dtype=dtype).reshape(9, 8, 8, 1))
    recipe = Recipe(device="cpu")
    with pytest.raises(BadInputError, match=r"needs 8-bit images.*; use --eight-bit-transfer False\.$"):
        _feed(recipe, data, **EIGHT_BIT)
    assert len(collect(_feed(recipe, data, **ON_DEVICE), range(2))) == 4


def test_case_82_a_width_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--accelerator-side-preprocess", "--eight-bit-transfer", "64"]
    assert main(["train", *options]) == 2
    said = capsys.readouterr().err
    assert "--eight-bit-transfer" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_cases_80_and_81_all_256_values_arrive(dtype: torch.dtype) -> None:
    values = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    spec = DataSpec(
        channels=1, height=16, width=16, num_classes=2, class_names=("a", "b"), image_dtype="uint8"
    )
    source = ArraySource(images=values, labels=np.zeros(1, dtype=np.int64))
    preparation = HostPreparation(source=source, preprocess=Preprocess(spec), travel="as stored")
    batch = preparation(np.zeros(1, dtype=np.int64))
    assert batch.images.dtype == torch.uint8
    expected = torch.arange(256, dtype=torch.float64)
    assert torch.equal(channels_last_view(batch.images).to(dtype).flatten().double(), expected)
    images, _ = preparation.on_device(batch)
    assert torch.equal((images.flatten() * 255).round(), torch.arange(256.0))
