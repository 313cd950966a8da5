"""How fast each stage of a feed is by itself: reading, moving, preprocessing."""

from dataclasses import replace
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.bench.delivery_subject import Delivery
from drivetrain.data.augment.at_decode import fetch_for_training
from drivetrain.data.feeds.host_batch import HostBatch
from drivetrain.data.order import without_padding
from drivetrain.data.preprocess import channels_last_view

__all__ = ["stage_speeds"]


def stage_speeds(delivery: Delivery, steps: int) -> dict[str, float]:
    """Images per second of reading, preprocessing and moving batches, each by itself."""
    spent_s = dict.fromkeys(("read_per_second", "preprocess_per_second", "transfer_per_second"), 0.0)
    images = 0
    for update in range(steps):
        samples = without_padding(delivery.order.indices(update))[: delivery.plan.batch.micro]
        passes = delivery.order.passes(update, update + 1)[0, : len(samples)]
        for stage, seconds in _timed_stages(delivery, samples, passes).items():
            spent_s[stage] += seconds
        images += len(samples)
    return {stage: images / seconds for stage, seconds in spent_s.items() if seconds}


def _timed_stages(
    delivery: Delivery, samples: NDArray[np.int64], passes: NDArray[np.int64]
) -> dict[str, float]:
    """The seconds of one micro-batch. Where there is no way to go, as on a CPU, transfer is left out."""
    device, augmentation = delivery.device, delivery.augmentation
    drawn = None
    if augmentation is not None:
        drawn = augmentation.draw(samples, passes=passes, usable=delivery.order.usable())
        samples, passes = drawn.indices, drawn.passes
    started_s = perf_counter()
    images, labels = map(torch.from_numpy, fetch_for_training(delivery.data.train, samples, passes=passes))
    read_s = perf_counter()
    batch = HostBatch(images, labels)
    if drawn is not None:
        mix = None if drawn.mix is None else torch.from_numpy(drawn.mix)
        batch = replace(batch, draws=torch.from_numpy(drawn.values), mix=mix)
    if not device.is_cpu:
        batch = batch.pin_memory()
        device.synchronise()
    moving_s = perf_counter()
    batch = batch.to(device.torch_device)
    device.synchronise()
    moved_s = perf_counter()
    _prepared(delivery, batch)
    device.synchronise()
    return {
        "read_per_second": read_s - started_s,
        "preprocess_per_second": perf_counter() - moved_s,
        "transfer_per_second": 0.0 if device.is_cpu else moved_s - moving_s,
    }


def _prepared(delivery: Delivery, batch: HostBatch) -> None:
    stored = channels_last_view(batch.images)
    if delivery.augmentation is None or batch.draws is None:
        delivery.preprocess.both(stored, batch.labels)
    else:
        delivery.augmentation.prepare(
            stored, batch.labels, preprocess=delivery.preprocess, draws=batch.draws, mix=batch.mix
        )
