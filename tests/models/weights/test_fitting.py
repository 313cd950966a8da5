"""What may differ between weights and a model: the head, the input channels, auxiliary classifiers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.weights.loading import load_tensors

GIVEN = "--pretrained x"


def network(*, channels: int = 3, num_classes: int = 5, **more: nn.Module) -> nn.Module:
    layers: dict[str, Any] = {
        "stem": nn.Conv2d(channels, 4, 3, bias=False),
        "norm": nn.BatchNorm2d(4),
        **more,
        "head": nn.Linear(4, num_classes),
    }
    return nn.ModuleDict(layers)


def state_of(**options: Any) -> dict[str, Tensor]:
    return network(**options).state_dict()


def load(model: nn.Module, state: dict[str, Tensor]) -> list[str]:
    return load_tensors(model, state, given=GIVEN)


def test_grey_images_sum_the_channels() -> None:
    model, state = network(channels=1), state_of()
    assert load(model, state) == [
        "--pretrained x has 3 input channels in stem.weight, but the model has 1: its weights are summed "
        "over the channels."
    ]
    grey = torch.randn(2, 1, 5, 5)
    coloured = nn.functional.conv2d(grey.expand(-1, 3, -1, -1), state["stem.weight"])
    assert torch.allclose(nn.functional.conv2d(grey, model.get_parameter("stem.weight")), coloured, atol=1e-6)


@pytest.mark.parametrize(("there", "here"), [(3, 4), (3, 2), (1, 3), (4, 6)])
def test_other_channels_repeat_and_scale(there: int, here: int) -> None:
    model, state = network(channels=here), state_of(channels=there)
    (note,) = load(model, state)
    assert f"repeated and scaled by {there}/{here}" in note
    own = model.get_parameter("stem.weight")
    for channel in range(here):
        assert torch.equal(own[:, channel], state["stem.weight"][:, channel % there] * (there / here))


def test_a_convolution_of_groups_is_not_adapted() -> None:
    model = network()
    model.stem = nn.Conv2d(4, 4, 3, bias=False, groups=2)
    with pytest.raises(BadInputError, match=r"stem.weight is 4x3x3x3 instead of 4x2x3x3"):
        load(model, state_of())


def test_only_the_first_convolution_is_adapted() -> None:
    with pytest.raises(BadInputError, match=r"second.weight is 4x2x1x1 instead of 4x4x1x1"):
        load(network(second=nn.Conv2d(4, 4, 1)), state_of(second=nn.Conv2d(2, 4, 1)))


def test_weights_without_a_head() -> None:
    model = network()
    before = model.get_parameter("head.weight").clone()
    body = {name: value for name, value in state_of().items() if not name.startswith("head")}
    assert load(model, body) == [
        "--pretrained x has no weights for the head: head starts from newly initialised weights."
    ]
    assert torch.equal(model.get_parameter("head.weight"), before)
    assert torch.equal(model.get_parameter("stem.weight"), body["stem.weight"])


def test_half_a_head_is_missing_weights() -> None:
    state = state_of()
    del state["head.bias"]
    with pytest.raises(BadInputError, match=r"head.bias \(5\) is missing"):
        load(network(), state)


def test_auxiliary_classifiers_are_left_out_and_said() -> None:
    assert load(network(), state_of(aux1=nn.Linear(2, 5), AuxLogits=nn.Linear(2, 5))) == [
        "--pretrained x: aux1 and AuxLogits left out, as the model has no auxiliary classifiers."
    ]


def test_auxiliary_classifiers_have_as_many_classes() -> None:
    (note,) = load(network(num_classes=2, aux1=nn.Linear(3, 2)), state_of(aux1=nn.Linear(3, 5)))
    assert note == (
        "--pretrained x has 5 classes, but the model has 2: aux1 and head start from newly initialised "
        "weights."
    )


def test_numbers_that_are_no_weights_may_be_left_over() -> None:
    state = {**state_of(), "position_ids": torch.arange(3)}
    assert load(network(), state) == []
    with pytest.raises(BadInputError, match=r"scale \(a single number\) is not in the model"):
        load(network(), {**state_of(), "scale": torch.tensor(1.0)})


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module.model."])
def test_the_prefix_of_a_wrapper_is_removed(prefix: str) -> None:
    model, state = network(), state_of()
    assert load(model, {f"{prefix}{name}": value for name, value in state.items()}) == []
    assert torch.equal(model.get_parameter("stem.weight"), state["stem.weight"])


def test_a_prefix_of_the_model_s_own_stays() -> None:
    model = nn.ModuleDict({"model": network()})
    state = nn.ModuleDict({"model": network()}).state_dict()
    assert load(model, state) == []
    assert torch.equal(model.get_parameter("model.stem.weight"), state["model.stem.weight"])


def test_positions_of_another_image_size_name_the_option() -> None:
    model, state = network(), state_of()
    model.register_parameter("pos_embed", nn.Parameter(torch.zeros(1, 4)))
    with pytest.raises(BadInputError, match=r"so give the --image-size of the weights\.$"):
        load(model, {**state, "pos_embed": torch.zeros(1, 9)})
