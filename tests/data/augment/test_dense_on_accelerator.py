"""Images with masks are prepared on an accelerator as on the host, inside a captured graph."""

import pytest
import torch
from torch import Tensor

from drivetrain.data.preprocess import channels_last_view
from tests.data.augment.dense_chains import EVERYTHING, PREPROCESS
from tests.data.augment.helpers import numbers
from tests.data.dense_samples import stored_pairs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")


def inputs(device: str) -> tuple[Tensor, Tensor, Tensor]:
    pixels, masks = stored_pairs(6, 40, 42, codes=True)
    indices = numbers(6)
    drawn = EVERYTHING.draw(indices, passes=indices, usable=indices)
    parts = (torch.from_numpy(values).to(device) for values in (pixels, masks, drawn.values))
    images, labels, draws = parts
    return channels_last_view(images), labels, draws


def prepare(images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    return EVERYTHING.prepare(images, labels, preprocess=PREPROCESS, draws=draws)


def test_an_accelerator_prepares_what_the_host_does() -> None:
    expected, found = prepare(*inputs("cpu")), prepare(*inputs("cuda"))
    assert (found[0].cpu() - expected[0]).abs().max() < 2e-3
    # A share of exactly one half may fall on either side.
    assert (found[1].cpu()[..., 0] != expected[1][..., 0]).float().mean() < 0.01


def test_the_chain_is_captured_without_waiting() -> None:
    there = inputs("cuda")
    expected = prepare(*there)
    torch.cuda.set_sync_debug_mode("error")
    try:
        prepare(*there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = prepare(*there)
    graph.replay()
    for found, wanted in zip(captured, expected, strict=True):
        assert torch.equal(found, wanted)
