"""Noise in the shape of a recipe's images, on the host and on the device."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from drivetrain.bench.generated import GeneratedSource, generated_data, generated_spec
from drivetrain.bench.train import DeviceFeed
from drivetrain.data.order import SampleOrder
from drivetrain.data.preprocess import Preprocess
from drivetrain.recipe.load import resolve_recipe


def test_the_shape_is_that_of_the_plan() -> None:
    spec = generated_spec(resolve_recipe(config="imagenet_resnet50"))
    assert (spec.channels, spec.height, spec.width, spec.num_classes) == (3, 224, 224, 1000)
    dense = generated_spec(
        resolve_recipe(overrides={"model": "unet_same", "dataset": "isbi2012", "image_size": 64})
    )
    assert (dense.task, dense.height, dense.num_classes) == ("segmentation", 64, 2)


@pytest.mark.parametrize("border_weight", [0, 10])
def test_samples_repeat_and_differ(border_weight: int) -> None:
    overrides = {"model": "unet_same", "image_size": 16, "border_weight": border_weight}
    source = generated_data(resolve_recipe(overrides=overrides), samples=6).train
    images, labels = source.fetch(np.array([1, 2, 1]))
    assert images.shape == (3, 16, 16, 1)
    assert labels.shape == (3, 16, 16, 2 if border_weight else 1)
    assert np.array_equal(images[0], images[2])
    assert not np.array_equal(images[0], images[1])
    assert set(np.unique(labels)) == {0, 1}


def test_batches_on_the_device_are_prepared_once() -> None:
    spec = generated_spec(resolve_recipe(overrides={"dataset": "digits", "model": "cifar_resnet8"}))
    order = SampleOrder(
        seed=0, samples=8, global_batch=8, updates_per_epoch=Fraction(1), remainder="trim", shuffle=True
    )
    feed = DeviceFeed(
        GeneratedSource(spec=spec, samples=8),
        order=order,
        preprocess=Preprocess(spec),
        micro_batch_size=2,
        device=torch.device("cpu"),
        replica=1,
        replicas=2,
    )
    first, second = feed.micro_batches(0)
    assert first.images.shape == (2, 1, 8, 8)
    assert float(first.images.max()) <= 1.0
    assert first.images is second.images
    assert (first.slots.tolist(), second.slots.tolist()) == ([2, 3], [6, 7])
    again = list(feed.unpack(feed.collect(1)))
    assert [batch.slots.tolist() for batch in again] == [[2, 3], [6, 7]]
    assert feed.collect(1).tensors == ()
    feed.close()
    assert list(feed.micro_batches(1)) == []
