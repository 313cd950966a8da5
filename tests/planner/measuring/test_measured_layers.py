"""Times of layers are scaled by one factor, such that whole updates are as long as the measured one."""

import pytest
import torch
from torch import nn

from drivetrain.devices.device import choose_device
from drivetrain.passes.forward import Precision
from drivetrain.pipeline.graph.trace import trace_model
from drivetrain.planner.measuring.measured_layers import calibrated, layer_seconds
from drivetrain.planner.measuring.measured_update import MeasuredUpdate

UPDATE = MeasuredUpdate(update_s=11.0, optimiser_s=1.0, micro_batches=2)


@pytest.mark.parametrize("recomputes", [(False, False), (True, False)])
def test_calibrated_layers_add_up_to_the_update(recomputes: tuple[bool, bool]) -> None:
    times = calibrated(["a", "b"], [(1.0, 2.0), (0.5, 1.5)], update=UPDATE, micro=4, recomputes=recomputes)
    assert times.layers is not None
    again = sum(
        layer.forward_s for layer, is_again in zip(times.layers.layers, recomputes, strict=True) if is_again
    )
    micro_batch_s = times.layers.forward_s + times.layers.backward_s + again
    assert 2 * micro_batch_s + times.update_s == pytest.approx(UPDATE.update_s, rel=1e-12)
    assert times.factor == (1.0 if not any(recomputes) else 5.0 / 6.0)


def test_layers_that_work_in_place_are_timed_forward_and_backward() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.ReLU(inplace=True), nn.Flatten()
    )
    traced = trace_model(model, image_shape=(3, 8, 8))
    device = choose_device("cpu")
    found = layer_seconds(
        traced,
        torch.randn(2, 3, 8, 8),
        device=device,
        precision=Precision(compute_dtype=torch.float32, device_type="cpu"),
    )
    assert len(found) == len(traced.layers)
    assert all(forward > 0 and backward > 0 for forward, backward in found)
