"""Small sources and orders for the tests of the data package."""

from fractions import Fraction
from math import ceil

import numpy as np
import torch

from drivetrain.data.feeds.micro_batch import Feed, MicroBatch
from drivetrain.data.order import SampleOrder
from drivetrain.data.source import ArraySource, DataSpec
from drivetrain.data.sources.synthetic import SyntheticSource
from drivetrain.recipe.schema import Remainder

CPU = torch.device("cpu")


def small_source(samples: int = 50, *, channels: int = 3, height: int = 6, width: int = 5) -> SyntheticSource:
    return SyntheticSource(
        seed=7,
        split="train",
        samples=samples,
        channels=channels,
        height=height,
        width=width,
        num_classes=10,
    )


def spec_of_small(source: SyntheticSource) -> DataSpec:
    return DataSpec(
        channels=source.channels,
        height=source.height,
        width=source.width,
        num_classes=10,
        class_names=tuple("0123456789"),
        image_dtype="uint8",
    )


def float_source(samples: int = 20) -> tuple[ArraySource, DataSpec]:
    values = np.linspace(-1, 1, samples * 4 * 4 * 2, dtype=np.float32).reshape(samples, 4, 4, 2)
    spec = DataSpec(
        channels=2, height=4, width=4, num_classes=2, class_names=("a", "b"), image_dtype="float32"
    )
    return ArraySource(images=values, labels=np.arange(samples, dtype=np.int64) % 2), spec


def make_order(
    samples: int = 50,
    *,
    global_batch: int = 8,
    remainder: Remainder = "trim",
    seed: int = 3,
    shuffle: bool = True,
    updates_per_epoch: int | None = None,
    bad: tuple[int, ...] = (),
) -> SampleOrder:
    exact = Fraction(samples, global_batch)
    natural = {"trim": Fraction(int(exact)), "pad": Fraction(ceil(exact)), "carry": exact}[remainder]
    return SampleOrder(
        seed=seed,
        samples=samples,
        global_batch=global_batch,
        updates_per_epoch=natural if updates_per_epoch is None else Fraction(updates_per_epoch),
        remainder=remainder,
        shuffle=shuffle,
        bad=bad,
    )


def collect(feed: Feed, updates: range) -> list[MicroBatch]:
    return [batch for update in updates for batch in feed.micro_batches(update)]


def same_batches(first: list[MicroBatch], second: list[MicroBatch]) -> bool:
    """Bitwise equality, memory layout included: a convolution's bits depend on it."""
    return len(first) == len(second) and all(map(_same_batch, first, second))


def _same_batch(first: MicroBatch, second: MicroBatch) -> bool:
    parts = ("images", "labels", "slots", "weights", "partner_labels", "mix")
    return all(_same_tensor(getattr(first, part), getattr(second, part)) for part in parts)


def _same_tensor(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    return first.stride() == second.stride() and first.dtype == second.dtype and torch.equal(first, second)
