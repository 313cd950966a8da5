"""A model gets rows and signals without the dimensions of images, and its copies do too."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.input_form import as_model_input, input_kind_of_model, set_input_kind
from drivetrain.models.memory_format import choose_memory_format, memory_format_of
from drivetrain.models.summary import summarise_model
from drivetrain.recipe.schema import Recipe
from tests.number_data import CHANNELS, FEATURES, LENGTH, Convolutions, Perceptron


def test_rows_and_signals_lose_the_dimensions_of_pixels() -> None:
    rows = set_input_kind(Perceptron().eval(), "table")
    assert torch.equal(rows(torch.ones(3, FEATURES, 1, 1)), rows(torch.ones(3, FEATURES)))
    waves = torch.randn(3, 1, LENGTH, CHANNELS).permute(0, 3, 1, 2)
    net = set_input_kind(Convolutions().eval(), "signal")
    assert torch.equal(deepcopy(net)(waves), net(waves[:, :, 0].contiguous()))
    assert as_model_input(net, waves).shape == (3, CHANNELS, LENGTH)


def test_the_kind_can_change_and_is_kept_once() -> None:
    model = nn.Identity()
    for kind in ("table", "signal", "signal", "table"):
        set_input_kind(model, kind)
        assert input_kind_of_model(model) == kind
        assert len(model._forward_pre_hooks) == 1
    assert not set_input_kind(model, "image")._forward_pre_hooks
    assert input_kind_of_model(model) == "image"


def test_hooks_of_the_user_see_what_the_model_takes() -> None:
    model, seen = nn.Identity(), []
    model.register_forward_pre_hook(lambda _model, inputs: seen.append(inputs[0].shape))
    set_input_kind(model, "table")(torch.zeros(2, 3, 1, 1))
    assert seen == [(2, 3)]


def test_the_layout_in_memory_is_the_default_one() -> None:
    model = set_input_kind(Convolutions(), "signal")
    assert memory_format_of(model) == torch.contiguous_format
    shape = (CHANNELS, 1, LENGTH)
    assert choose_memory_format(Recipe(model="a:b"), model, image_shape=shape) == []
    asked = Recipe(model="a:b", memory_format="channels_last")
    assert "no effect" in choose_memory_format(asked, model, image_shape=shape)[0]


@pytest.mark.parametrize(
    ("model", "kind", "shape", "said"),
    [
        (
            Perceptron(7),
            "table",
            (5, 1, 1),
            r"rows of 5 .*layer first.0 \(Linear\) takes 7 features",
        ),
        (Convolutions(3), "signal", (2, 1, 24), r"features.0 \(Conv1d\) takes 3 channels, but gets 2"),
        (Convolutions(1), "table", (24, 1, 1), "--input-kind signal hands it the data as signals"),
        (Convolutions(), "image", (1, 24, 2), "--input-kind signal hands it the data as signals"),
        (Convolutions(), "image", (1, 2, 24), "--input-kind signal hands it the data as signals"),
        (Convolutions(), "signal", (24, 1, 2), "would take them transposed"),
        (Perceptron(), "signal", (1, 1, 5), "--input-kind table hands it the data as rows"),
        (Perceptron(), "image", (5, 1, 1), "--input-kind table hands it the data as rows"),
    ],
)
def test_a_model_that_does_not_fit_is_explained(
    model: nn.Module, kind: str, shape: tuple[int, int, int], said: str
) -> None:
    channels, height, width = shape
    with pytest.raises(BadInputError, match=said):
        summarise_model(
            set_input_kind(model, kind),  # type: ignore[arg-type]
            channels=channels,
            image_size=height,
            width=width,
        )
