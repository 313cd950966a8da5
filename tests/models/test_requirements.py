"""What a user's own model must do, and what is said where it does not."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.requirements import require_tensor, require_tensor_in_training


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ((torch.zeros(1), None), r"a tuple of 2 \(Tensor, NoneType\); .* for example output\[0\] alone\."),
        ([torch.zeros(1)], r"a list of 1 \(Tensor\); .* output\[0\] alone"),
        ({"aux": 1, "out": torch.zeros(1)}, r"a dict of aux, out; .* output\['out'\] alone"),
        (None, r"returns None; its forward must return one tensor of logits\."),
        (3.5, r"returns a float; its forward must return one tensor of logits\."),
    ],
)
def test_what_is_no_tensor_is_told_in_a_sentence(output: Any, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        require_tensor(output)


class _Auxiliary(nn.Module):
    """Returns a second head in training, as models for ImageNet do."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, images: Tensor) -> Any:
        logits = self.norm(images).mean((2, 3))
        return (logits, logits) if self.training else logits


def test_a_model_that_returns_more_in_training_is_refused_and_left_as_it_was() -> None:
    model = _Auxiliary(3).eval()
    with pytest.raises(BadInputError, match=r"returns a tuple of 2 \(Tensor, Tensor\) in training; "):
        require_tensor_in_training(model, image_shape=(3, 8, 8))
    assert not model.training
    assert model.norm.num_batches_tracked == 0


@pytest.mark.parametrize("image_shape", [(3, 8, 8), (3, 100_000, 100_000)], ids=["run", "without memory"])
def test_one_tensor_is_right_however_large_the_images(image_shape: tuple[int, int, int]) -> None:
    require_tensor_in_training(nn.Conv2d(3, 8, 3), image_shape=image_shape)


def test_a_model_that_fails_is_left_to_who_says_why() -> None:
    require_tensor_in_training(_Auxiliary(3), image_shape=(4, 8, 8))
