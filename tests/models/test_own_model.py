from functools import partial

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec
from drivetrain.models.own_model import OwnModel, dtype_warning, name_of_given, require_given_model
from drivetrain.recipe.schema import Recipe

SPEC = DataSpec(
    channels=2, height=6, width=5, num_classes=3, class_names=("a", "b", "c"), image_dtype="uint8"
)


class Net(nn.Module):
    def __init__(self, num_classes: int, channels: int = 1, *, width: int = 4) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, width, 3)
        self.head = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.convolution(images).mean((2, 3)))
        return logits


def test_a_class_is_called_with_what_it_takes() -> None:
    recipe = Recipe(model=name_of_given(Net), model_params={"width": 7}, seed=3)
    models = [OwnModel(Net, recipe)(SPEC) for _ in range(2)]
    assert models[0](torch.zeros(1, 2, 6, 5)).shape == (1, 3)
    one, same = (model.state_dict()["head.weight"] for model in models)
    assert one.shape == (3, 7)
    assert torch.equal(one, same)


def test_a_function_may_take_nothing() -> None:
    made = OwnModel(lambda: Net(3, 2), Recipe())(SPEC)
    assert isinstance(made, Net)


def test_a_module_is_copied_into_float32_and_stays_as_it_is() -> None:
    given = Net(3, 2).double()
    made = OwnModel(given, Recipe())(SPEC)
    assert made is not given
    assert made.state_dict()["head.weight"].dtype == torch.float32
    assert given.head.weight.dtype == torch.float64
    assert OwnModel(given, Recipe()).in_place(SPEC) is given


def test_a_lazy_module_is_completed_for_the_data() -> None:
    given = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(3))
    made = OwnModel(given, Recipe())(SPEC)
    shapes = [module.state_dict()["2.weight"].shape for module in (made, given)]
    assert shapes == [(3, 4 * 4 * 3)] * 2


def test_weights_that_are_nowhere_are_told() -> None:
    with pytest.raises(BadInputError, match=r"^The model cannot be copied: .*meta"):
        OwnModel(Net(3, 2).to("meta"), Recipe())(SPEC)


def test_names_are_those_that_the_command_line_would_take() -> None:
    class Local(nn.Module):
        """Inside a function."""

    assert (
        name_of_given(Net)
        == name_of_given(Net(3))
        == name_of_given(partial(Net, width=3))
        == f"{__name__}:Net"
    )
    assert name_of_given(Local) == f"{__name__}:Local"
    assert name_of_given(lambda: Net(3)) == f"{__name__}:lambda"


def test_what_is_no_model_is_refused() -> None:
    assert require_given_model("resnet18") is None
    with pytest.raises(BadInputError, match=r"^model is of type int; give a name such as 'resnet18', "):
        require_given_model(3)
    with pytest.raises(BadInputError, match=r"returned a dict, not a torch.nn.Module"):
        OwnModel(dict, Recipe())(SPEC)  # type: ignore[arg-type]


def test_weights_of_other_types_are_said() -> None:
    assert dtype_warning(Net(3)) is None
    assert dtype_warning(Net(3).half()) == "the model has weights in float16; they are trained in float32."
