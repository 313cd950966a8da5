"""The segmentation loss on an accelerator is that of the host, and waits for nothing."""

from typing import Literal

import pytest
import torch
from torch import Tensor

from drivetrain.tasks.segmentation import SegmentationTask
from tests.tasks.dense_cases import random_case

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")


@pytest.mark.parametrize(("classes", "loss"), [(2, "softmax"), (5, "softmax"), (5, "sigmoid")])
def test_losses_scores_and_gradients_are_captured(classes: int, loss: Literal["softmax", "sigmoid"]) -> None:
    logits, labels = random_case(4, classes, size=(64, 60), codes=True)
    weights = torch.linspace(1, 2, classes)

    def step(values: Tensor, truth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        task = SegmentationTask(
            num_classes=classes, loss=loss, class_weights=on[values.device.type], border_weight=4.0
        )
        losses, scores = task.losses_and_scores(values, truth)
        (gradient,) = torch.autograd.grad(losses.sum(), values)
        return losses.detach(), scores, gradient

    on = {"cpu": weights, "cuda": weights.cuda()}
    expected = step(logits.float().requires_grad_(), labels)
    there = (logits.float().cuda().requires_grad_(), labels.cuda())
    step(*there)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(*there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(*there)
    graph.replay()
    for found, wanted in zip(captured, expected, strict=True):
        assert torch.allclose(found.cpu(), wanted, rtol=1e-4, atol=1e-7)
