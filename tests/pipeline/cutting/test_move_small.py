"""Crop first, then send."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from drivetrain.models.zoo.unet import unet
from drivetrain.pipeline.cutting.cut import cut_model
from drivetrain.pipeline.cutting.move_small import move_small
from drivetrain.pipeline.cutting.splits import stages_by_names
from drivetrain.pipeline.cutting.stage_values import find_edges, node_stages
from drivetrain.pipeline.graph.shapes import ModelShapes, find_shapes
from drivetrain.pipeline.graph.trace import TracedModel, trace_model
from drivetrain.schedules.actions import Edge
from tests.pipeline.small_models import LateCrop, train_stages

UNET_SPLITS = ("encoder_block_2_conv_0", "decoder_block_0_concat", "decoder_block_2_concat")


def with_shapes(model: nn.Module, *image_shape: int) -> tuple[TracedModel, ModelShapes]:
    traced = trace_model(model)
    return traced, find_shapes(traced, image_shape=image_shape)


def _sent_bytes(traced: TracedModel, stage_of: Sequence[int], shapes: ModelShapes) -> int:
    edges = find_edges(traced, node_stages(traced, stage_of))
    return sum(shapes.values[edge.value].num_bytes for edge in edges)


def test_a_late_crop_moves_to_where_the_skip_is_made() -> None:
    model = LateCrop()
    traced, shapes = with_shapes(model, 2, 1, 8, 8)
    names = [layer.name for layer in traced.layers]
    assert names == ["down", "middle", "getitem", "cat", "up"]
    given = [0, 1, 2, 2, 2]
    moved = move_small(traced, stage_of=given, shapes=shapes)
    assert moved == (0, 1, 0, 2, 2)
    before, after = (_sent_bytes(traced, stages, shapes) for stages in (given, moved))
    assert before - after == 2 * 2 * (6 * 6 - 4 * 4) * 4
    cut = cut_model(traced, stage_of=moved)
    assert cut.edges == (Edge("down", 0, 1), Edge("middle", 1, 2), Edge("getitem", 0, 2))
    images = torch.randn(2, 1, 8, 8)
    assert torch.equal(train_stages(cut, images), model(images))


def test_a_crop_does_not_move_where_the_whole_is_sent_anyway() -> None:
    traced, shapes = with_shapes(LateCrop(), 2, 1, 8, 8)
    assert move_small(traced, stage_of=[0, 1, 1, 1, 1], shapes=shapes) == (0, 1, 1, 1, 1)


def test_a_named_layer_stays() -> None:
    traced, shapes = with_shapes(nn.Sequential(nn.Conv2d(1, 2, 1), nn.MaxPool2d(2), nn.ReLU()), 1, 1, 4, 4)
    assert move_small(traced, stage_of=[0, 1, 1], shapes=shapes) == (0, 0, 1)
    assert move_small(traced, stage_of=[0, 1, 1], shapes=shapes, fixed={"1"}) == (0, 1, 1)


def test_no_stage_is_emptied_and_the_output_stays() -> None:
    traced, shapes = with_shapes(nn.Sequential(nn.Conv2d(1, 2, 1), nn.MaxPool2d(2), nn.ReLU()), 1, 1, 4, 4)
    assert move_small(traced, stage_of=[0, 1, 2], shapes=shapes) == (0, 1, 2)
    traced, shapes = with_shapes(nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.MaxPool2d(2)), 1, 1, 4, 4)
    assert move_small(traced, stage_of=[0, 0, 1], shapes=shapes) == (0, 0, 1)


class _TwoHalves(nn.Module):
    """Each half alone would be sent beside the whole; only both together save something."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 1)
        self.last = nn.Conv2d(1, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        features = self.conv(images)
        return self.last(features[:, :1] + features[:, 1:2])  # type: ignore[no-any-return]


def test_readers_of_one_value_move_together_and_a_cast_too() -> None:
    traced, shapes = with_shapes(_TwoHalves(), 1, 1, 4, 4)
    assert move_small(traced, stage_of=[0, 1, 1, 1, 1], shapes=shapes) == (0, 0, 0, 1, 1)


class _Casts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.conv(images).to(torch.bfloat16) * 2 + 1  # type: ignore[no-any-return]


def test_a_cast_moves() -> None:
    traced, shapes = with_shapes(_Casts(), 1, 1, 4, 4)
    assert move_small(traced, stage_of=[0, 1, 1, 1], shapes=shapes) == (0, 0, 1, 1)


def test_the_unet_sends_cropped_skips_and_has_the_published_sizes() -> None:
    with torch.device("meta"):
        model = unet(channels=1, num_classes=2)
    traced, shapes = with_shapes(model, 1, 1, 572, 572)
    given = stages_by_names(traced, UNET_SPLITS)
    moved = move_small(traced, stage_of=given, shapes=shapes, fixed=set(UNET_SPLITS))
    cut = cut_model(traced, stage_of=moved, shapes=shapes)
    counts = [sum(weight.numel() for weight in stage.parameters()) for stage in cut.stages]
    assert counts == [259008, 20680704, 9504640, 586306]
    crops = {edge.value: (edge.producer, edge.consumer) for edge in cut.edges if "crop" in edge.value}
    assert crops == {
        "central_crop": (0, 3),
        "central_crop_1": (0, 3),
        "central_crop_2": (1, 2),
        "central_crop_3": (1, 2),
    }
    assert shapes.values["central_crop"].shape == (1, 64, 392, 392)
    assert len(cut.edges) == 7
    back = {"central_crop": 3, "central_crop_1": 3, "central_crop_2": 2}
    late = [back.get(layer.name, stage) for layer, stage in zip(traced.layers, moved, strict=True)]
    assert move_small(traced, stage_of=late, shapes=shapes, fixed=set(UNET_SPLITS)) == moved
