"""Automatic cuts: known answers by weights, an exhaustive search by cost, and what cannot be cut."""

from dataclasses import dataclass
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.zoo.cifar_resnet import cifar_resnet8
from drivetrain.models.zoo.mnist_cnn import mnist_cnn
from drivetrain.models.zoo.resnet import resnet50
from drivetrain.pipeline.cutting.choose_stages import FLOPS_PER_BYTE, choose_stages, possible_splits
from drivetrain.pipeline.cutting.cut import cut_model
from drivetrain.pipeline.cutting.splits import stages_by_names
from drivetrain.pipeline.cutting.stage_plan import plan_stages
from drivetrain.pipeline.cutting.stage_values import find_edges, node_stages
from drivetrain.pipeline.graph.shapes import ModelShapes, find_shapes
from drivetrain.pipeline.graph.trace import TracedModel, trace_model
from drivetrain.recipe.schema import Recipe
from tests.pipeline.small_models import Everything


def with_shapes(model: nn.Module, *image_shape: int) -> tuple[TracedModel, ModelShapes]:
    traced = trace_model(model)
    return traced, find_shapes(traced, image_shape=image_shape)


@pytest.mark.parametrize(
    ("stages", "firsts"),
    [
        (1, []),
        (2, ["conv4_block1_layer1_bn"]),
        (3, ["conv4_block1_layer1_conv_ds", "conv4_block1_layer2_conv"]),
        (4, ["conv3_block1_layer2_conv", "conv4_block1_layer1_bn", "conv4_block1_layer2_conv"]),
    ],
)
def test_cifar_resnet8_by_weights(stages: int, firsts: list[str]) -> None:
    traced, shapes = with_shapes(cifar_resnet8(channels=3, num_classes=10), 1, 3, 8, 8)
    assert list(choose_stages(traced, shapes, stages=stages, by="parameters")) == firsts


def test_resnet50_by_weights() -> None:
    with torch.device("meta"):
        model = resnet50(channels=3, num_classes=1000)
    traced, shapes = with_shapes(model, 1, 3, 32, 32)
    assert sum(layer.parameters + layer.buffers for layer in shapes.layers) == 25610152
    assert choose_stages(traced, shapes, stages=2, by="parameters") == ("conv5_block1_0_conv",)
    assert choose_stages(traced, shapes, stages=4, by="parameters") == (
        "conv4_block5_1_conv",
        "conv5_block1_0_conv",
        "conv5_block3_1_conv",
    )


def test_mnist_cnn_by_weights_begins_with_the_second_convolution() -> None:
    traced, shapes = with_shapes(mnist_cnn(channels=1, num_classes=10, image_size=28), 1, 1, 28, 28)
    (first,) = choose_stages(traced, shapes, stages=2, by="parameters")
    module = traced.model.get_submodule(first)
    assert isinstance(module, nn.Conv2d)
    assert module.in_channels == 32


def test_weights_in_one_layer_still_give_as_many_stages() -> None:
    traced, shapes = with_shapes(nn.Sequential(nn.Conv2d(1, 9, 3), nn.ReLU(), nn.Flatten()), 1, 1, 3, 3)
    assert choose_stages(traced, shapes, stages=3, by="parameters") == ("1", "2")


def stage_costs(traced: TracedModel, shapes: ModelShapes, starts: tuple[int, ...]) -> tuple[float, int]:
    """The most expensive stage and all bytes sent, counted by the cut itself."""
    stage_of = [sum(start <= place for start in starts) for place in range(len(traced.layers))]
    costs = [0.0] * (len(starts) + 1)
    for stage, layer in zip(stage_of, shapes.layers, strict=True):
        costs[stage] += 3 * layer.flops
    sent = 0
    for edge in find_edges(traced, node_stages(traced, stage_of)):
        sent += shapes.values[edge.value].num_bytes
        costs[edge.consumer] += 2 * FLOPS_PER_BYTE * shapes.values[edge.value].num_bytes
    return max(costs), sent


@pytest.mark.parametrize("stages", [2, 3])
def test_no_other_cut_is_cheaper(stages: int) -> None:
    traced, shapes = with_shapes(Everything(), 2, 1, 8, 8)
    places = {layer.name: place for place, layer in enumerate(traced.layers)}
    firsts = choose_stages(traced, shapes, stages=stages, by="cost")
    chosen = stage_costs(traced, shapes, tuple(places[first] for first in firsts))
    others = [
        stage_costs(traced, shapes, starts) for starts in combinations(possible_splits(traced), stages - 1)
    ]
    assert chosen == min(others)
    assert max(others) > chosen
    assert choose_stages(traced, shapes, stages=stages, by="cost") == firsts


def test_by_time_the_slow_layer_stands_alone() -> None:
    traced, shapes = with_shapes(nn.Sequential(*(nn.Conv2d(1, 1, 1) for _ in range(5))), 1, 1, 4, 4)
    seconds = [1.0, 1.0, 5.0, 1.0, 1.0]
    assert choose_stages(traced, shapes, stages=3, by="time", seconds=seconds) == ("2", "3")


@pytest.mark.parametrize("by", ["cost", "parameters"])
def test_more_stages_than_layers(by: str) -> None:
    traced, shapes = with_shapes(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU()), 1, 1, 4, 4)
    with pytest.raises(
        BadInputError, match="--stages 3: this model can be split into 1 to 2 stages; --stages 2"
    ):
        choose_stages(traced, shapes, stages=3, by=by)  # type: ignore[arg-type]
    assert choose_stages(traced, shapes, stages=2, by=by) == ("1",)  # type: ignore[arg-type]


class _Awkward(nn.Module):
    """A layer used twice, a tuple, a change through a view: no cut inside any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Conv2d(1, 1, 1)
        self.wide = nn.Conv2d(1, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.wide(self.shared(self.shared(images).relu()))
        first, second = features.chunk(2, dim=1)
        joined = first + second
        part = joined[:, :, :1]
        part.mul_(2)
        outputs: Tensor = joined.sigmoid()
        return outputs


def test_only_cuts_that_work_are_possible() -> None:
    traced, shapes = with_shapes(_Awkward(), 1, 1, 4, 4)
    names = [traced.layers[place].name for place in possible_splits(traced)]
    assert names == ["wide", "chunk", "add"]
    for stages in range(2, 5):
        for by in ("cost", "parameters"):
            firsts = choose_stages(traced, shapes, stages=stages, by=by)
            cut = cut_model(traced, stage_of=stages_by_names(traced, firsts), shapes=shapes)
            assert [stage.stage_facts.layer_names[0] for stage in cut.stages[1:]] == list(firsts)


@dataclass
class _Output:
    features: Tensor
    pooled: Tensor


class _Pair(nn.Module):
    """Returns an object with two tensors, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 9, padding=4)

    def forward(self, images: Tensor) -> _Output:
        features = self.conv(images)
        # A trace of this code fails, so the module is one step.
        if features.sum() < float("inf"):
            features = features.tanh()
        return _Output(features, features.mean((2, 3)))


class _ReadsAnObject(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = _Pair()
        self.conv = nn.Conv2d(4, 16, 3)
        self.line = nn.Linear(20, 5)

    def forward(self, images: Tensor) -> Tensor:
        output = self.pair(images)
        features = self.conv(output.features).mean((2, 3))
        logits: Tensor = self.line(torch.cat([features, output.pooled], 1))
        return logits


_TOO_FEW = (
    r"^--stages 3: this model can be split into 1 to 2 stages, because pair is one step: "
    r"tests/pipeline/cutting/test_choose_stages\.py line \d+ branches on the values or sizes of tensors; "
    r"--stages 2 works\.$"
)


def test_an_object_of_several_tensors_stays_with_its_readers() -> None:
    model = _ReadsAnObject()
    plan = plan_stages(Recipe(stages=2), model, image_shape=(3, 8, 8), micro=2, accumulation=2)
    assert plan is not None
    assert plan.firsts == ("line",)
    assert [edge.value for edge in plan.cut().edges] == ["cat"]
    with pytest.raises(BadInputError, match=_TOO_FEW):
        plan_stages(Recipe(stages=3), model, image_shape=(3, 8, 8), micro=2, accumulation=3)


def test_a_split_through_an_object_of_several_tensors_is_refused_by_name() -> None:
    recipe = Recipe(stages=2, pipeline_splits=("conv",))
    plan = plan_stages(recipe, _ReadsAnObject(), image_shape=(3, 8, 8), micro=2, accumulation=2)
    assert plan is not None
    with pytest.raises(BadInputError, match="would receive pair, which is not a single tensor"):
        plan.cut()
