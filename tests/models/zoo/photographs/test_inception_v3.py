"""Inception-v3: count as in Keras, sizes, features of the same weights, training in stages."""

import pytest
import torch
from torch import nn

from drivetrain.inference.model.fold_batch_norm import fold_batch_norm
from drivetrain.optim.blocks import blocks_of
from tests.models.zoo.known_counts import TOTALS_OF_KERAS
from tests.models.zoo.photographs.checks import (
    check_order,
    check_smallest,
    check_total,
    check_updates_in_stages,
    outline,
    undrawn,
)
from tests.models.zoo.photographs.keras_bodies import check_features


def test_the_total_is_that_of_keras() -> None:
    check_total("inception_v3", TOTALS_OF_KERAS["inception_v3"])


def test_layers() -> None:
    check_order("inception_v3")


def test_smallest_image() -> None:
    check_smallest("inception_v3")


@pytest.mark.usefixtures("one_thread")
def test_two_updates_in_stages() -> None:
    check_updates_in_stages("inception_v3", image_size=75)


def test_features_are_those_of_keras() -> None:
    check_features("inception_v3", "InceptionV3", height=75, width=80)


def test_norms_have_a_shift_but_no_scale() -> None:
    for name, layer in outline("inception_v3").named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.eps, layer.momentum) == (1e-3, 0.01), name
            assert [parameter for parameter, _ in layer.named_parameters()] == ["bias"], name


@torch.no_grad()
def test_norms_without_scale_are_folded_into_convolutions() -> None:
    model = undrawn("inception_v3").eval()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.running_var is not None
            layer.running_var.uniform_(0.3, 3)
            layer.bias.normal_()
    folded = fold_batch_norm(model)
    assert len(folded.folded) == 94
    images = torch.randn(1, 3, 75, 75)
    torch.testing.assert_close(folded.model(images), model(images), rtol=1e-3, atol=1e-3)


def test_every_mixed_block_is_trained_at_one_rate() -> None:
    names = [block.name for block in blocks_of(outline("inception_v3"))]
    assert names[1:] == [*(f"mixed{index}" for index in range(11)), "predictions"]
