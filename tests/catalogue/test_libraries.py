"""The prefixes of libraries of models, and what a name tells without the library."""

import pytest

from drivetrain.catalogue.libraries import is_library_model, library_info, library_of, library_task
from drivetrain.catalogue.models import check_model_name, is_external_model, model_task, output_margin_of
from drivetrain.core.errors import BadInputError
from tests.models.libraries.stand_ins import hide_library


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/vgg11", "hf/vit", "smp/unet:resnet34"])
def test_a_prefix_makes_a_library_model(name: str) -> None:
    assert is_library_model(name)
    assert is_external_model(name)
    assert output_margin_of(name) == 0


@pytest.mark.parametrize("name", ["resnet18", "my.nets:make"])
def test_other_names_are_none(name: str) -> None:
    assert not is_library_model(name)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("timm/resnet18", "classification"),
        ("torchvision/resnet18", "classification"),
        ("torchvision/fcn_resnet50", "segmentation"),
        ("torchvision/lraspp_mobilenet_v3_large", "segmentation"),
        ("smp/unet:resnet34", "segmentation"),
        ("hf/segformer", None),
    ],
)
def test_the_name_tells_the_task_where_it_can(name: str, task: str | None) -> None:
    assert library_task(name) == model_task(name) == task


def test_an_unknown_prefix_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInputError, match=r"--model timmy/resnet18 .*Did you mean timm\? .*smp/\.\.\."):
        library_of("timmy/resnet18")
    with pytest.raises(BadInputError, match=r"--from tim .*Did you mean timm\?"):
        library_info("tim", option="--from")
    with pytest.raises(BadInputError, match=r"your own model is package.module:factory"):
        check_model_name("./my_nets.py:make")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("timm/resnet18", "timm", "timm"),
        ("torchvision/resnet18", "torchvision", "torchvision"),
        ("hf/vit", "transformers", "transformers"),
        ("smp/unet:resnet34", "segmentation_models_pytorch", "smp"),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_library(monkeypatch, package)
    with pytest.raises(BadInputError, match=rf"package {package}, .*pip install -e \.\[{extra}\]"):
        check_model_name(name)
