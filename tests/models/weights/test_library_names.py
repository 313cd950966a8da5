"""Weights in another form than a library's model has. timm is a small stand-in."""

import pytest
import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.create import build_model
from drivetrain.models.weights.library_names import from_library
from drivetrain.models.weights.loading import load_tensors
from tests.models.libraries.stand_ins import use_stand_ins


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    use_stand_ins(monkeypatch)


def patches(*, image_size: int) -> nn.Module:
    return build_model(
        "timm/vit_small", channels=3, image_size=image_size, num_classes=4, seed=image_size, params={}
    )


def test_timm_resamples_positions() -> None:
    model, other = patches(image_size=32), patches(image_size=16)
    nn.init.normal_(other.get_parameter("pos_embed"))
    assert load_tensors(model, other.state_dict(), given="--pretrained x") == [
        "--pretrained x: pos_embed is resampled from 1x6x4x4 to 1x6x8x8."
    ]
    expected = nn.functional.interpolate(other.get_parameter("pos_embed"), size=(8, 8), mode="bicubic")
    assert torch.equal(model.get_parameter("pos_embed"), expected)


def test_weights_of_another_network_are_described_by_their_own_names() -> None:
    with pytest.raises(BadInputError, match=r"0 of the model's 5 tensors fit; .*foreign \(2\) is not in"):
        load_tensors(patches(image_size=16), {"foreign": torch.zeros(2)}, given="--pretrained x")


def test_other_models_have_no_library_to_ask() -> None:
    assert from_library(nn.Linear(2, 2), {"a": torch.zeros(1)}, given="x") is None
