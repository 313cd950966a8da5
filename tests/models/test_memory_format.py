"""The memory format of a model: what is chosen, how it is said, and how images arrive."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models import memory_format, summary
from drivetrain.models.create import create_model
from drivetrain.models.memory_format import (
    choose_memory_format,
    follow_memory_format,
    in_memory_format,
    memory_format_of,
)
from drivetrain.recipe.schema import Recipe
from tests.models.layout_models import NEEDS_DEFAULT, PlainNet, ViewNet

OWN = "my_models:Net"


def _choose(model: nn.Module, *, name: str = OWN, channels: int = 1, **options: Any) -> list[str]:
    return choose_memory_format(Recipe(model=name, **options), model, image_shape=(channels, 8, 8))


@pytest.fixture(params=["real", "fake"])
def _each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models are tried with real numbers, large ones with fake tensors."""
    if request.param == "fake":
        monkeypatch.setattr(summary, "_MAX_REAL_FLOPS", 0)
        monkeypatch.setattr(memory_format, "_try", lambda *_: pytest.fail("fake tensors were not enough"))
    else:
        monkeypatch.setattr(memory_format, "_try_fake", lambda *_: pytest.fail("the model is small"))


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", NEEDS_DEFAULT, ids=lambda kind: kind.__name__)
def test_a_model_that_needs_the_default_gets_it_and_a_sentence_says_so(
    kind: type[PlainNet], channels: int
) -> None:
    model = kind(channels=channels)
    sentences = _choose(model, channels=channels)
    assert memory_format_of(model) == torch.contiguous_format
    assert len(sentences) == 1
    assert sentences[0].startswith("--model runs in torch's default memory format, because channels_last f")
    assert "layout_models.py line " in sentences[0]


@pytest.mark.usefixtures("_each_way")
def test_other_models_stay_channels_last_without_a_word() -> None:
    model = PlainNet()
    assert _choose(model) == []
    assert memory_format_of(model) == torch.channels_last
    weight = in_memory_format(model).get_parameter("second.weight")
    assert weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("kind", NEEDS_DEFAULT, ids=lambda kind: kind.__name__)
def test_channels_last_is_refused_where_only_the_default_runs(kind: type[PlainNet]) -> None:
    with pytest.raises(BadInputError, match=r"line \d+\); --memory-format contiguous works\.$"):
        _choose(kind(), memory_format="channels_last")
    assert _choose(PlainNet(), memory_format="channels_last") == []


def test_contiguous_is_taken_at_its_word() -> None:
    for model, name in ((PlainNet(), OWN), (_known(), "cifar_resnet8")):
        assert _choose(model, name=name, memory_format="contiguous") == []
        assert memory_format_of(model) == torch.contiguous_format


def _known() -> nn.Module:
    return create_model("cifar_resnet8", channels=3, image_size=8, num_classes=3)


def test_models_of_ours_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_format, "_failure", lambda *_, **__: pytest.fail("the model was tried"))
    assert _choose(_known(), name="cifar_resnet8", channels=3) == []


def test_an_edited_model_of_ours_is_tried() -> None:
    for edits in (("my_models:edit",), ()):
        assert len(_choose(ViewNet(), name="cifar_resnet8", model_edit=edits)) == 1


def test_a_model_that_fails_in_both_is_left_to_who_says_why() -> None:
    model = ViewNet(channels=3)
    assert _choose(model, channels=2) == []
    assert memory_format_of(model) == torch.channels_last


class _Noting(nn.Module):
    """Notes the strides of the images it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.strides: tuple[int, ...] = ()

    def forward(self, images: Tensor) -> Tensor:
        self.strides = images.stride()
        return images.mean((2, 3))


@pytest.mark.parametrize("channels", [1, 3])
def test_images_arrive_in_the_format_of_the_model(channels: int) -> None:
    # As feeds deliver them.
    images = torch.rand(2, 4, 5, channels).permute(0, 3, 1, 2)
    model = _Noting()
    model(images)
    assert model.strides == images.stride()
    _choose(model, memory_format="contiguous")
    for one in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        one(images)
        # A grey image is contiguous whatever the stride of its one channel, but convolutions look at it.
        assert one.strides == torch.empty(2, channels, 4, 5).stride()


def test_the_last_choice_counts_and_a_replacement_follows() -> None:
    model, other = _Noting(), _Noting()
    for word in ("contiguous", "contiguous", "channels_last"):
        _choose(model, memory_format=word)
        follow_memory_format(other, of=model)
        assert memory_format_of(other) == memory_format_of(model)
        assert len(model._forward_pre_hooks) == (word == "contiguous")


def test_trying_leaves_no_trace() -> None:
    torch.manual_seed(0)
    model = ViewNet().eval()
    before = {name: (value.clone(), value.stride()) for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    _choose(model)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name][0])
        assert value.stride() == before[name][1]
    assert not any(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
