"""The work of layers, counted by hand for a small model."""

import torch
from torch import nn

from drivetrain.pipeline.graph.shapes import find_shapes
from drivetrain.pipeline.graph.trace import trace_model
from drivetrain.planner.layer_work import layer_work

IMAGES = (2, 3, 8, 8)


def _model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))


def test_flops_and_bytes_are_those_of_the_layers() -> None:
    traced = trace_model(_model(), image_shape=IMAGES[1:])
    shapes = find_shapes(traced, image_shape=IMAGES)
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        conv, relu, flat, linear = layer_work(traced, shapes, float_types=[dtype] * 4)
        assert conv.flops == 2 * 2 * 4 * 36 * 27
        assert conv.read_bytes == size * (2 * 3 * 64 + 4 * 27)
        assert conv.output_bytes == relu.output_bytes == flat.output_bytes == size * 2 * 4 * 36
        assert (relu.flops, relu.parameters) == (0, 0)
        assert linear.flops == 2 * 2 * 144 * 5
        assert linear.moved_bytes == size * (2 * 144 + 144 * 5 + 5 + 2 * 5)
