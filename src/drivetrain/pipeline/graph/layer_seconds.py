"""Measures how long every layer of a traced model takes."""

import statistics
import time
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from drivetrain.pipeline.graph.graph_walk import GraphWalk
from drivetrain.pipeline.graph.shapes import undisturbed
from drivetrain.pipeline.graph.trace import TracedModel

__all__ = ["measure_layer_seconds"]


def measure_layer_seconds(traced: TracedModel, images: Tensor, *, repeats: int = 5) -> tuple[float, ...]:
    """The median seconds of each layer's forward pass, in evaluation, so that no statistic moves."""
    measured = []
    with undisturbed(traced.model), torch.no_grad():
        _Clock(traced).measure(images)
        for _ in range(repeats):
            measured.append(_Clock(traced).measure(images))
    return tuple(statistics.median(run[layer.node] for run in measured) for layer in traced.layers)


class _Clock(GraphWalk):
    def __init__(self, traced: TracedModel) -> None:
        super().__init__(traced.model, graph=traced.graph)
        self._traced = traced
        self._seconds: dict[Node, float] = {}

    def measure(self, images: Tensor) -> dict[Node, float]:
        # Layers that work in place would otherwise change the caller's images.
        self._on_accelerator = images.device.type != "cpu"
        self.walk(images.clone())
        return self._seconds

    def run_node(self, n: Node) -> Any:
        self._wait()
        start = time.perf_counter()
        result = super().run_node(n)
        self._wait()
        self._seconds[n] = time.perf_counter() - start
        return result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        return self._traced.attribute(target)

    def _wait(self) -> None:
        if self._on_accelerator:
            torch.accelerator.synchronize()
