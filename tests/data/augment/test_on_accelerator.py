"""Host and accelerator prepare the same images, and the host is never waited for."""

from dataclasses import replace

import pytest
import torch

from drivetrain.data.augment.chain import Augmentation
from drivetrain.data.augment.flip import Flip
from drivetrain.data.augment.mixup import Mixup
from drivetrain.data.augment.rand_augment import RandAugment
from drivetrain.data.augment.random_crop import PaddedCrop, ResizedCrop
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.preprocess import Preprocess
from drivetrain.data.source import Normalisation
from tests.data.helpers import collect, make_order, small_source, spec_of_small

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")

EXACT = Augmentation(
    seed=2, on_pixels=(Flip("horizontal"),), on_normalised=(PaddedCrop(),), mixup=Mixup(alpha=1.0)
)
RESAMPLING = replace(
    EXACT,
    on_pixels=(
        ResizedCrop(smallest_share=0.3, height=16, width=16, size=(16, 16)),
        RandAugment(operations=2, magnitude=9),
    ),
)


def feed_on(device: str, augmentation: Augmentation, normalisation: Normalisation) -> ResidentFeed:
    source = small_source(height=16, width=16)
    return ResidentFeed(
        source,
        order=make_order(),
        preprocess=Preprocess(replace(spec_of_small(source), normalisation=normalisation)),
        micro_batch_size=4,
        device=torch.device(device),
        augmentation=augmentation,
    )


@pytest.mark.parametrize("normalisation", ["unit", "standardise", "imagenet"])
def test_an_accelerator_prepares_what_the_host_does(normalisation: Normalisation) -> None:
    on_host = collect(feed_on("cpu", EXACT, normalisation), range(8))
    there = collect(feed_on("cuda", EXACT, normalisation), range(8))
    for host, device in zip(on_host, there, strict=True):
        assert (device.images.cpu() - host.images).abs().max() < 1e-6


def test_resampling_differs_by_rounding_alone() -> None:
    on_host = collect(feed_on("cpu", RESAMPLING, "unit"), range(8))
    there = collect(feed_on("cuda", RESAMPLING, "unit"), range(8))
    differences = torch.cat([(b.images.cpu() - a.images).abs() for a, b in zip(on_host, there, strict=True)])
    # A value at a level's edge may fall on its other side where levels are counted.
    assert (differences > 1e-4).float().mean() < 0.01


def test_nothing_waits_for_the_accelerator_inside_a_block() -> None:
    feed = feed_on("cuda", RESAMPLING, "imagenet")
    collect(feed, range(1))
    torch.cuda.set_sync_debug_mode("error")
    try:
        collect(feed, range(1, 4))
    finally:
        torch.cuda.set_sync_debug_mode("default")
