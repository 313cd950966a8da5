"""Seconds of layers, measured without a trace in the model."""

import copy

import pytest
import torch
from torch import Tensor, nn

from drivetrain.pipeline.graph import layer_seconds
from drivetrain.pipeline.graph.layer_seconds import measure_layer_seconds
from drivetrain.pipeline.graph.trace import trace_model
from tests.pipeline.small_models import Everything
from tests.slow_motion import SlowMotion


class _Sleep(nn.Module):
    def __init__(self, time: SlowMotion) -> None:
        super().__init__()
        self.time = time

    def forward(self, inputs: Tensor) -> Tensor:
        self.time.sleep(2.0)
        return inputs * 1 if inputs.shape[0] else inputs


def test_the_slow_layer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowMotion()
    monkeypatch.setattr(layer_seconds, "time", time)
    traced = trace_model(nn.Sequential(nn.Conv2d(1, 1, 1), _Sleep(time), nn.ReLU()))
    seconds = measure_layer_seconds(traced, torch.zeros(1, 1, 4, 4), repeats=3)
    assert seconds == (0.0, 2.0, 0.0)


def test_model_and_images_stay_as_they_were() -> None:
    model = Everything()
    before, images = copy.deepcopy(model.state_dict()), torch.randn(2, 1, 6, 6)
    kept = images.clone()
    traced = trace_model(model)
    assert len(measure_layer_seconds(traced, images, repeats=1)) == len(traced.layers)
    assert model.training
    assert torch.equal(images, kept)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
