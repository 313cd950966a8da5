import importlib
import subprocess
import sys

import pytest

from drivetrain.errors import BadInputError
from drivetrain.models.registry import (
    check_image_size,
    check_model_name,
    find_models,
    is_external_model,
    model_info,
    model_names,
)

CIFAR_NAMES = [f"cifar_resnet{depth}" for depth in (8, 20, 32, 44, 56)]
PHOTO_NAMES = [f"resnet{depth}" for depth in (18, 34, 50, 101, 152)]
NAMES = ["toy_model", "mnist_cnn", *CIFAR_NAMES, *PHOTO_NAMES]


def test_all_names_are_known_in_order() -> None:
    assert model_names() == NAMES


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, NAMES),
        ("*", NAMES),
        ("RESNET", NAMES[2:]),
        ("cifar*4?", ["cifar_resnet44"]),
        ("[tm]*", ["toy_model", "mnist_cnn"]),
        ("cifar", CIFAR_NAMES),
        ("resnet*", PHOTO_NAMES),
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
    with pytest.raises(BadInputError, match="--model foo is not known"):
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


def test_torch_is_not_imported() -> None:
    script = (
        "import sys; from drivetrain.models import registry; from drivetrain.errors import BadInputError\n"
        "registry.check_model_name('toy_model'); registry.find_models('*')\n"
        "try: registry.check_model_name('foo')\n"
        "except BadInputError: pass\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
