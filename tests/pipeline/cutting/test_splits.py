"""From names and marks to stages, and what is said about names that do not work."""

import pytest
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.zoo.cifar_resnet import cifar_resnet8
from drivetrain.pipeline.cutting.marks import assign_stages, stage
from drivetrain.pipeline.cutting.splits import resolve_names, stages_by_marks, stages_by_names
from drivetrain.pipeline.graph.trace import TracedModel, trace_model
from tests.pipeline.small_models import Everything


def chain() -> TracedModel:
    """Case 98: pool, two convolutions, a sum and a flattening."""
    return trace_model(_Chain())


class _Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.conv2d = nn.Conv2d(1, 1, 1)
        self.conv2d_1 = nn.Conv2d(1, 1, 1)
        self.flatten = nn.Flatten()

    def forward(self, images: Tensor) -> Tensor:
        pooled = self.pool(images)
        return self.flatten(self.conv2d_1(self.conv2d(pooled)) + pooled)  # type: ignore[no-any-return]


def test_a_named_layer_is_the_first_of_its_stage() -> None:
    assert stages_by_names(chain(), ["conv2d_1", "flatten"]) == (0, 0, 1, 1, 2)
    assert stages_by_names(chain(), []) == (0, 0, 0, 0, 0)


def test_a_functional_step_a_module_path_and_a_beginning_name_layers() -> None:
    assert stages_by_names(chain(), ["add"]) == (0, 0, 0, 1, 1)
    assert resolve_names(chain(), ["fl"]) == ("flatten",)
    assert resolve_names(trace_model(Everything()), ["block", "br"]) == ("block.conv1", "branch")


def test_an_exact_name_wins_over_longer_ones() -> None:
    assert resolve_names(chain(), ["conv2d"]) == ("conv2d",)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ["foo"],
            "foo: the model has no such layer. Layers in the order in which they run: pool, conv2d, conv2d_1",
        ),
        (["conv2d_2"], "Did you mean conv2d_1?"),
        (
            ["conv2d_1", "conv2d"],
            "is not in the order of the layers; --pipeline-splits conv2d conv2d_1 works",
        ),
        (["add", "add"], "names a layer twice; --pipeline-splits add works"),
        (["conv"], "matches several layers: conv2d, conv2d_1; use one of these names"),
        (["pool"], "pool is the first layer of the model, which always begins stage 0"),
        ([""], "no such layer"),
    ],
)
def test_names_that_do_not_work(names: list[str], words: str) -> None:
    with pytest.raises(BadInputError) as caught:
        stages_by_names(chain(), names)
    assert words in str(caught.value)
    assert str(caught.value).startswith("--pipeline-splits ")


def test_an_ambiguous_beginning_of_modules_lists_modules() -> None:
    with pytest.raises(BadInputError, match=r"conv3_block1_layer1_bn, conv3_block1_layer1_relu"):
        resolve_names(trace_model(cifar_resnet8(channels=3, num_classes=10)), ["conv3_block1_layer1"])


class _Marked(nn.Module):
    def __init__(self, *, second: int = 1) -> None:
        super().__init__()
        with stage(0):
            self.first = nn.Conv2d(1, 1, 1)
            self.relu = nn.ReLU()
        with stage(second):
            self.second = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Sigmoid())

    def forward(self, images: Tensor) -> Tensor:
        return self.relu(self.second(self.relu(self.first(images)) + 1))  # type: ignore[no-any-return]


def test_marks_of_construction_and_unmarked_layers() -> None:
    traced = trace_model(_Marked())
    assert [layer.name for layer in traced.layers] == [
        "first",
        "relu",
        "add",
        "second.0",
        "second.1",
        "relu#2",
    ]
    assert stages_by_marks(traced) == (0, 0, 0, 1, 1, 1)


def test_marks_of_assignment() -> None:
    model = Everything()
    assign_stages({"block": 1, "block.bn2": 2, "classifier": 3}, model)
    traced = trace_model(model)
    stages = dict(zip((layer.name for layer in traced.layers), stages_by_marks(traced), strict=True))
    assert stages["relu"] == 0
    assert [stages[f"block.{name}"] for name in ("conv1", "conv2", "bn2")] == [1, 1, 2]
    assert stages["classifier"] == 3


def test_marks_against_the_order_and_with_gaps_are_refused() -> None:
    with pytest.raises(BadInputError, match="No layer of the model is marked for stage 1"):
        stages_by_marks(trace_model(_Marked(second=2)))
    model = _Marked()
    assign_stages({"first": 1, "second": 0}, model)
    with pytest.raises(BadInputError, match=r"Layer second\.0 is marked for stage 0, but runs after"):
        stages_by_marks(trace_model(model))


def test_a_functional_step_in_a_marked_block_belongs_to_it() -> None:
    model = Everything()
    assign_stages({"block": 1, "branch": 2}, model)
    traced = trace_model(model)
    scoped = [(layer.name, mark) for layer, mark in zip(traced.layers, stages_by_marks(traced), strict=True)]
    assert ("iadd", 1) in scoped
    assert ("branch", 2) in scoped


def test_no_marks_no_cut() -> None:
    assert set(stages_by_marks(chain())) == {0}
