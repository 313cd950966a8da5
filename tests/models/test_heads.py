"""The head of a model: what its library names, or the last layer. The libraries are small stand-ins."""

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from drivetrain.models.create import create_model
from drivetrain.models.heads import head_parameters


def parts(**layers: nn.Module) -> nn.Module:
    return nn.Sequential() if not layers else nn.ModuleDict(layers)


def with_config(model: nn.Module, config: Any) -> nn.Module:
    model.pretrained_cfg = config
    return model


def layer() -> nn.Module:
    return nn.Linear(2, 2, bias=False)


def test_the_last_layer_with_parameters() -> None:
    assert head_parameters(create_model("cifar_resnet8")) == ["fc_layer.weight", "fc_layer.bias"]
    assert head_parameters(nn.Sequential(layer(), nn.Sequential(layer(), layer()), nn.ReLU())) == [
        "1.1.weight"
    ]
    assert head_parameters(nn.ReLU()) == []


@pytest.mark.parametrize(
    ("classifier", "named"),
    [
        ("head.fc", ["head.fc.weight"]),
        (("head.fc", "distilled"), ["head.fc.weight", "distilled.weight"]),
        (None, ["after.weight"]),
    ],
)
def test_what_timm_calls_the_classifier(classifier: Any, named: list[str]) -> None:
    def model() -> nn.Module:
        return parts(stem=layer(), head=parts(norm=layer(), fc=layer()), distilled=layer(), after=layer())

    for config in ({"classifier": classifier}, SimpleNamespace(classifier=classifier)):
        assert head_parameters(with_config(model(), config)) == named
        wrapped = parts(model=with_config(model(), config))
        assert head_parameters(wrapped) == [f"model.{name}" for name in named]


@pytest.mark.parametrize(
    ("body", "head"),
    [("backbone", ("classifier", "aux_classifier")), ("encoder", ("decoder", "segmentation_head"))],
)
def test_everything_but_the_body(body: str, head: tuple[str, ...]) -> None:
    model = parts(**{body: parts(one=layer(), two=layer())}, **{name: layer() for name in head})
    assert head_parameters(model) == [f"{name}.weight" for name in head]


def test_transformers_name_their_base_model() -> None:
    model = parts(vit=layer(), pooler=layer(), classifier=layer())
    model.base_model_prefix = "vit"  # type: ignore[assignment]
    assert head_parameters(model) == ["pooler.weight", "classifier.weight"]


def test_a_body_that_holds_everything_is_no_body() -> None:
    assert head_parameters(parts(backbone=parts(one=layer(), two=layer()))) == ["backbone.two.weight"]
