"""Micro-batches of ranks that see no data."""

import torch

from drivetrain.data.feeds.micro_batch import SlotFeed
from tests.data.helpers import CPU, make_order


def test_slots_are_those_of_the_replicas_micro_batches() -> None:
    order = make_order(samples=8, global_batch=8)
    feeds = [
        SlotFeed(order=order, micro_batch_size=2, device=CPU, replica=replica, replicas=2)
        for replica in range(2)
    ]
    found = [[batch.slots.tolist() for batch in feed.micro_batches(3)] for feed in feeds]
    assert found == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    batch = next(feeds[0].micro_batches(0))
    assert batch.images.numel() == batch.labels.numel() == 0
    assert torch.equal(batch.slots, next(feeds[0].micro_batches(5)).slots)
