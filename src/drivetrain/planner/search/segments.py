"""What any run of consecutive layers costs as one stage: seconds, bytes received, memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from drivetrain.planner.costs import Link
from drivetrain.planner.search.problem import Layer, Problem

__all__ = ["Segments", "find_segments"]

_Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Tables over the bounds at which stages may begin and end; entry [i, j] is the stage from i to j.

    Bytes and seconds are those of one micro-batch. Entries with i >= j mean nothing.
    """

    bounds: Sequence[int]
    forward_s: _Numbers
    backward_s: _Numbers
    transfer_s: _Numbers
    """The time on the link of what the stage receives, and of the gradients that it sends back."""
    received_bytes: _Numbers
    saved_bytes: _Numbers
    working_bytes: _Numbers
    weight_bytes: _Numbers
    gradient_bytes: _Numbers
    state_bytes: _Numbers
    largest_layer_s: float

    @property
    def compute_s(self) -> _Numbers:
        """Forward and backward pass."""
        return self.forward_s + self.backward_s

    @property
    def total_s(self) -> float:
        """Forward and backward pass of the whole model."""
        return float(self.forward_s[0, -1] + self.backward_s[0, -1])


def find_segments(
    problem: Problem, *, micro: int, link: Link, slowdown: float = 1.0, norm_s: float = 0.0
) -> Segments:
    """The tables for a micro-batch size and the link between stages.

    Each layer that normalises takes `norm_s` more in both passes.
    """
    scale, layers = problem.seconds_scale(micro), problem.layers
    bounds = np.array([0, *problem.starts, len(layers)])

    def seconds(whole: Sequence[float], least: float) -> list[float]:
        extra = [norm_s if layer.normalises else 0.0 for layer in layers]
        # A smaller micro-batch takes less time only down to what a layer takes in any case.
        timed = [max(each * scale, min(each, least)) * slowdown for each in whole]
        return [each + more for each, more in zip(timed, extra, strict=True)]

    forward = seconds([layer.forward_s for layer in layers], problem.least_layer_s)
    backward = seconds([layer.backward_s for layer in layers], problem.least_layer_s)
    received, gradients = _received(problem)
    picked = np.ix_(bounds, bounds)
    received, gradients = received[picked] * scale, gradients[picked] * scale
    return Segments(
        bounds=[int(bound) for bound in bounds],
        forward_s=_sums(forward, bounds),
        backward_s=_sums(backward, bounds),
        transfer_s=(received + gradients) / link.bytes_per_s
        + link.latency_s * ((received > 0).astype(float) + (gradients > 0)),
        received_bytes=received,
        saved_bytes=_saved(problem)[picked] * scale,
        working_bytes=_largest(layers, bounds) * scale,
        weight_bytes=_sums([layer.weight_bytes for layer in layers], bounds),
        gradient_bytes=_sums([layer.gradient_bytes for layer in layers], bounds),
        state_bytes=_sums([layer.state_bytes for layer in layers], bounds),
        largest_layer_s=max(there + back for there, back in zip(forward, backward, strict=True)),
    )


def _sums(numbers: Sequence[float], bounds: NDArray[np.int_]) -> _Numbers:
    reached = np.concatenate([[0.0], np.cumsum(np.array(numbers, dtype=np.float64))])[bounds]
    return np.asarray(reached[None, :] - reached[:, None])


def _received(problem: Problem) -> tuple[_Numbers, _Numbers]:
    """Bytes that layers a..b-1 as one stage receive, and bytes of gradients that they send back.

    A value crosses every boundary between its producer and its last reader, but a stage receives it once.
    """
    count = len(problem.layers)
    sizes, gradients = np.zeros((count + 1, count + 1)), np.zeros((count + 1, count + 1))
    for value in problem.values:
        begin = value.producer + 1
        for consumer in sorted(value.consumers):
            sizes[begin : consumer + 1, consumer + 1] += value.size_bytes
            if value.has_gradient:
                gradients[begin : consumer + 1, consumer + 1] += value.size_bytes
            begin = max(begin, consumer + 1)
    return np.cumsum(sizes, axis=1), np.cumsum(gradients, axis=1)


def _saved(problem: Problem) -> _Numbers:
    """Bytes that layers a..b-1 as one stage keep, its inputs left out."""
    count = len(problem.layers)
    table = np.zeros((count + 1, count + 1))
    for kept in problem.saved:
        table[kept.producer, kept.saver + 1] += kept.size_bytes
    from_start = np.cumsum(table[::-1], axis=0)[::-1]
    return np.asarray(np.cumsum(from_start, axis=1))


def _largest(layers: Sequence[Layer], bounds: NDArray[np.int_]) -> _Numbers:
    """The largest working memory of the layers of each stage."""
    between = [max(layer.working_bytes for layer in layers[first:end]) for first, end in pairwise(bounds)]
    table = np.zeros((len(bounds), len(bounds)))
    for first in range(len(between)):
        table[first, first + 1 :] = np.maximum.accumulate(between[first:])
    return table
