"""What is known of the models by name, without torch."""

import importlib
import subprocess
import sys

import pytest

from drivetrain.catalogue.models import (
    check_image_size,
    check_model_name,
    find_models,
    is_external_model,
    missing_to_multiple,
    model_info,
    model_names,
    model_task,
    nearest_image_size,
    nearest_sizes,
    output_margin_of,
    padded_size,
)
from drivetrain.core.errors import BadInputError

CIFAR_NAMES = [f"cifar_resnet{depth}" for depth in (8, 20, 32, 44, 56)]
PHOTO_NAMES = [f"resnet{depth}" for depth in (18, 34, 50, 101, 152)]
LIGHT_NAMES = [
    "mobilenet",
    "mobilenet_v2",
    *(f"mobilenet_v3_{size}" for size in ("small", "large")),
    *(f"densenet{depth}" for depth in (121, 169, 201)),
    *(f"efficientnet_b{number}" for number in range(4)),
]
V1_NAMES = [f"resnet{depth}v1" for depth in (50, 101, 152)]
V2_NAMES = [f"resnet{depth}v2" for depth in (50, 101, 152)]
LATER_NAMES = ["alexnet", "inception_v3", *V1_NAMES, *V2_NAMES, "vgg16", "vgg19", "xception"]
UNET_NAMES = ["unet", "unet_medical", "unet_same"]
NAMES = [
    "toy_model",
    "mnist_cnn",
    *CIFAR_NAMES,
    *PHOTO_NAMES,
    "lenet",
    *LATER_NAMES,
    *LIGHT_NAMES,
    *UNET_NAMES,
]


def test_all_names_are_known_in_order() -> None:
    assert model_names() == NAMES


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, NAMES),
        ("*", NAMES),
        ("RESNET", [*CIFAR_NAMES, *PHOTO_NAMES, *V1_NAMES, *V2_NAMES]),
        ("UNet", UNET_NAMES),
        ("cifar*4?", ["cifar_resnet44"]),
        ("[tc]*", ["toy_model", *CIFAR_NAMES]),
        ("cifar", CIFAR_NAMES),
        ("resnet*", [*PHOTO_NAMES, *V1_NAMES, *V2_NAMES]),
        ("nothing", []),
    ],
)
def test_patterns(pattern: str | None, expected: list[str]) -> None:
    assert [info.name for info in find_models(pattern)] == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_factory_exists(name: str) -> None:
    module, _, function = model_info(name).factory.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list() -> None:
    with pytest.raises(
        BadInputError, match=r"--model cifar_resnet9 .*Did you mean cifar_resnet8\?.*mnist_cnn"
    ):
        model_info("cifar_resnet9")
    with pytest.raises(BadInputError, match="--model foo is not a known model"):
        check_model_name("foo")


def test_names_of_users_own_models() -> None:
    assert is_external_model("package.module:factory")
    assert not is_external_model("toy_model")
    check_model_name("package.module:Factory.create")
    check_model_name("toy_model")


@pytest.mark.parametrize(
    "name", ["models.py:net:two", "my-models:net", ":net", "models:", "path/models:net", "a:b c"]
)
def test_a_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(BadInputError, match=r"--model .* package\.module:factory"):
        check_model_name(name)


def test_an_image_too_small_is_answered_with_the_smallest_that_works() -> None:
    check_image_size(model_info("toy_model"), 27)
    with pytest.raises(BadInputError, match=r"--image-size 26 .* --image-size 27"):
        check_image_size(model_info("toy_model"), 26)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (3, r"--image-size 3 is too small for unet; .* --image-size 4\."),
        (5, r"5 pixels do not fit unet; .* --image-size \(or --tile-size\) 4 and 20\."),
        (512, r"512 pixels do not fit unet; .* 500 and 516\."),
    ],
)
def test_sizes_of_an_unpadded_model_lie_apart(size: int, message: str) -> None:
    for works in (4, 20, 388, 500, 516):
        check_image_size(model_info("unet"), works)
    with pytest.raises(BadInputError, match=message):
        check_image_size(model_info("unet"), size)


def test_tasks_and_margins() -> None:
    tasks = {name: model_info(name).task for name in NAMES}
    assert [name for name in NAMES if tasks[name] == "segmentation"] == UNET_NAMES
    assert set(tasks.values()) == {"classification", "segmentation"}
    margins = {name: output_margin_of(name) for name in NAMES}
    assert {name: margin for name, margin in margins.items() if margin} == {"unet": 92, "unet_medical": 92}
    assert output_margin_of("my_models:net") == 0
    assert (model_task("unet"), model_task("toy_model"), model_task("my_models:net")) == (
        "segmentation",
        "classification",
        None,
    )


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [("unet", 1, 4), ("unet", 256, 260), ("unet", 507, 500), ("unet", 388, 388), ("unet_same", 7, 7)],
)
def test_the_nearest_size_works(name: str, size: int, expected: int) -> None:
    assert nearest_image_size(name, size) == expected
    check_image_size(model_info(name), expected)


def test_a_users_own_model_is_taken_to_take_any_size() -> None:
    assert nearest_image_size("my_models:net", 17) == 17


def test_torch_is_not_imported() -> None:
    script = (
        "import sys; from drivetrain.catalogue import models as registry\n"
        "from drivetrain.core.errors import BadInputError\n"
        "registry.check_model_name('toy_model'); registry.find_models('*')\n"
        "registry.check_image_size(registry.model_info('unet'), 388); registry.output_margin_of('unet')\n"
        "try: registry.check_model_name('foo')\n"
        "except BadInputError: pass\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("size", "depth", "expected"), [(1, 4, 16), (16, 4, 16), (17, 4, 32), (33, 1, 34), (512, 8, 512)]
)
def test_padded_size(size: int, depth: int, expected: int) -> None:
    assert padded_size(size, depth=depth) == expected


@pytest.mark.parametrize(("size", "expected"), [(8, (0, 0)), (7, (0, 1)), (5, (1, 2)), (1, (3, 4))])
def test_the_odd_pixel_is_added_after(size: int, expected: tuple[int, int]) -> None:
    assert missing_to_multiple(size, multiple=8) == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(388, (388, 404)), (389, (388, 404)), (403, (388, 404)), (5, (4, 20))]
)
def test_nearest_sizes(size: int, expected: tuple[int, int]) -> None:
    assert nearest_sizes(size, smallest=4, step=16) == expected
