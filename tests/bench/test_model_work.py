"""What a forward pass computes and moves, on a model that can be counted by hand."""

import pytest
import torch
from torch import Tensor, nn

from drivetrain.bench.model_work import count_work

SHAPE = (3, 4, 4)
WEIGHTS = 8 * 3 * 9 + 8
IMAGE, FEATURES = 3 * 16, 8 * 16


class _Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layer(images)
        return features.relu().flatten(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_and_activations_are_counted(dtype: torch.dtype) -> None:
    work = count_work(_Small(), image_shape=SHAPE, dtype=dtype)
    assert work.parameters == work.trainable == WEIGHTS
    assert work.flops_per_image == 2 * 8 * 27 * 16
    assert work.weight_bytes == WEIGHTS * dtype.itemsize
    # The convolution reads the image and writes features, which the ReLU reads and writes; a view is free.
    assert work.activation_bytes == (IMAGE + FEATURES + 2 * FEATURES) * dtype.itemsize


def test_a_model_that_is_frozen_in_part_has_fewer_trainable_parameters() -> None:
    model = _Small()
    model.layer.bias.requires_grad_(False)  # type: ignore[union-attr]
    work = count_work(model, image_shape=SHAPE, dtype=torch.float32)
    assert (work.parameters, work.trainable) == (WEIGHTS, WEIGHTS - 8)
    assert set(work.to_json()) == {
        "parameters",
        "trainable",
        "flops_per_image",
        "weight_bytes",
        "activation_bytes",
    }
