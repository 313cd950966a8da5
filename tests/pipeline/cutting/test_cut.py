"""A cut model computes bit for bit what the uncut one does, and sends each value straight and once."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.models.zoo.cifar_resnet import cifar_resnet8
from drivetrain.models.zoo.resnet import resnet18
from drivetrain.models.zoo.unet import unet
from drivetrain.models.zoo.unet_same import unet_same
from drivetrain.pipeline.cutting.cut import Cut, cut_model
from drivetrain.pipeline.cutting.splits import stages_by_names
from drivetrain.pipeline.graph.trace import trace_model
from drivetrain.schedules.actions import Edge
from tests.pipeline.small_models import Everything, even_stages, train_stages

CONTEXT = UpdateContext(torch.device("cpu"))


def _unet_same() -> nn.Module:
    model = unet_same(channels=1, num_classes=2, depth=2, width=2, norm="batch", dropout=0.5)
    install_counter_dropout(model, seed=3, context=CONTEXT)
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cifar_resnet8": (lambda: cifar_resnet8(channels=3, num_classes=10), (2, 3, 8, 8)),
    "resnet18": (lambda: resnet18(channels=3, num_classes=4), (2, 3, 32, 32)),
    "unet": (lambda: unet(channels=1, num_classes=2, width=1, drop_rate=0.0), (1, 1, 188, 188)),
    "unet_same": (_unet_same, (2, 1, 9, 7)),
    "everything": (Everything, (2, 1, 7, 6)),
}


def twins(name: str) -> tuple[nn.Module, nn.Module, Tensor]:
    build, shape = MODELS[name]
    torch.manual_seed(5)
    model = build()
    twin = build()
    twin.load_state_dict(model.state_dict())
    CONTEXT.begin_forward(torch.arange(shape[0]))
    return model, twin, torch.randn(shape)


def assert_same(model: nn.Module, twin: nn.Module) -> None:
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, parameter in twin.named_parameters():
        expected = gradients[name]
        assert (expected is None) == (parameter.grad is None), name
        assert expected is None or torch.equal(expected, parameter.grad), name  # type: ignore[arg-type]
    for name, value in twin.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("cifar_resnet8", 2),
        ("cifar_resnet8", 4),
        ("resnet18", 4),
        ("unet", 4),
        ("unet_same", 2),
        ("unet_same", 4),
        ("everything", 2),
    ],
)
def test_training_is_the_same_bit_for_bit(name: str, stages: int) -> None:
    model, twin, images = twins(name)
    traced = trace_model(twin)
    cut = cut_model(traced, stage_of=even_stages(traced, stages))
    expected = model(images.clone())
    expected.backward(torch.ones_like(expected))
    CONTEXT.begin_forward(CONTEXT.slots)
    assert torch.equal(train_stages(cut, images), expected)
    assert_same(model, twin)


def test_many_readers_of_one_value_only_add_up_in_another_order() -> None:
    model, twin, images = twins("everything")
    model, twin, images = model.double(), twin.double(), images.double()
    traced = trace_model(twin)
    cut = cut_model(traced, stage_of=even_stages(traced, 4))
    assert sum(edge.value == "relu" for edge in cut.edges) == 2
    expected = model(images)
    expected.backward(torch.ones_like(expected))
    assert torch.equal(train_stages(cut, images), expected)
    gradients = zip(model.parameters(), twin.parameters(), strict=True)
    pairs = [(one.grad, other.grad) for one, other in gradients if one.grad is not None]
    assert len(pairs) > 10
    for one, other in pairs:
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-14)


def test_every_cut_of_a_hand_written_model() -> None:
    model, twin, images = twins("everything")
    start_state = copy.deepcopy(twin.state_dict())
    expected = model(images)
    expected.backward(torch.ones_like(expected))
    traced = trace_model(twin)
    count = len(traced.layers)
    assert count > 20
    for start in range(1, count):
        twin.load_state_dict(start_state)
        twin.zero_grad()
        cut = cut_model(traced, stage_of=[int(place >= start) for place in range(count)])
        assert torch.equal(train_stages(cut, images), expected), start
        assert_same(model, twin)


def test_evaluation_follows_the_model() -> None:
    model, twin, images = twins("everything")
    traced = trace_model(twin)
    cut = cut_model(traced, stage_of=even_stages(traced, 3))
    twin.eval()
    with torch.no_grad():
        assert torch.equal(train_stages_without_gradients(cut, images), model.eval()(images))
        assert not torch.equal(model.train()(images), model.eval()(images))


def train_stages_without_gradients(cut: Cut, images: Tensor) -> Tensor:
    values = {cut.input: images}
    for stage in cut.stages:
        values.update(
            zip(
                stage.stage_facts.outputs,
                stage(*(values[name] for name in stage.stage_facts.inputs)),
                strict=True,
            )
        )
    return values[cut.output]


@pytest.mark.parametrize("name", MODELS)
def test_the_stages_hold_the_models_own_objects_under_its_names(name: str) -> None:
    _, model, _ = twins(name)
    traced = trace_model(model)
    cut = cut_model(traced, stage_of=even_stages(traced, 3))
    saved = [key for stage in cut.stages for key in stage.state_dict()]
    assert sorted(saved) == sorted(model.state_dict())
    own = dict(model.named_parameters())
    for stage in cut.stages:
        for key, parameter in stage.named_parameters():
            assert parameter is own[key]
        assert set(stage.stage_facts.parameter_names) == {key for key, _ in stage.named_parameters()}


def test_a_value_goes_straight_to_each_reader_once() -> None:
    model = Everything()
    traced = trace_model(model)
    cut = cut_model(traced, stage_of=stages_by_names(traced, ["block.bn1", "interpolate", "cat"]))
    assert cut.edges == (
        Edge("relu", 0, 1),
        Edge("relu", 0, 2),
        Edge("relu", 0, 3),
        Edge("block_conv1", 0, 1),
        Edge("custom", 1, 2),
        Edge(next(node.name for node in traced.graph.nodes if node.name == "add_1"), 2, 3),
    )
    # Sizes of the images are read again, not sent.
    assert [stage.stage_facts.inputs for stage in cut.stages] == [
        ("images",),
        ("relu", "block_conv1"),
        ("images", "relu", "custom"),
        ("images", "relu", "add_1"),
    ]
    assert (cut.input, cut.output) == ("images", "classifier")
    assert cut.stages[-1].stage_facts.outputs == ("classifier",)
    assert cut.stages[1].stage_facts.layer_names == ("block.bn1", "custom")


def test_a_received_value_is_copied_before_it_is_changed() -> None:
    model = Everything()
    traced = trace_model(model)
    cut = cut_model(traced, stage_of=stages_by_names(traced, ["block.relu"]))
    received = [torch.randn(1, *shape) for shape in ((1, 6, 6), (4, 6, 6), (4, 6, 6))]
    assert cut.stages[1].stage_facts.inputs == ("images", "relu", "block_bn1")
    before = copy.deepcopy(received)
    cut.stages[1](*received)
    assert all(map(torch.equal, received, before))
    kinds = [node.target for node in cut.stages[1].graph.nodes if node.op == "call_method"]
    assert kinds.count("clone") == 1


class _Shared(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 1, 1)
        self.layer = layer
        self.last = nn.Conv2d(1, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(self.last(self.layer(self.first(images))))  # type: ignore[no-any-return]


@pytest.mark.parametrize("layer", [nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1, affine=False)])
def test_a_layer_with_numbers_in_two_stages_is_refused(layer: nn.Module) -> None:
    traced = trace_model(_Shared(layer))
    with pytest.raises(
        BadInputError, match=r"layer\..* is used by layer layer in stage 0 and by layer layer#2"
    ):
        cut_model(traced, stage_of=[0, 0, 1, 1])
    assert len(cut_model(traced, stage_of=[0, 1, 1, 1]).stages) == 2


def test_calls_before_a_stage_are_counted() -> None:
    traced = trace_model(_Shared(nn.Dropout(0.5)))
    cut = cut_model(traced, stage_of=[0, 0, 1, 1])
    assert [dict(stage.stage_facts.calls_before) for stage in cut.stages] == [{"layer": 0}, {"layer": 1}]


def test_tied_weights_in_two_stages_are_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 1, 1))
    model[2].weight = model[0].weight
    with pytest.raises(BadInputError, match="weight is used by layer 0 in stage 0 and by layer 2 in stage 1"):
        cut_model(trace_model(model), stage_of=[0, 0, 1])


def test_stages_without_layers_and_backward_ones_are_refused() -> None:
    traced = trace_model(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Sigmoid()))
    with pytest.raises(BadInputError, match="stage 1 without a layer"):
        cut_model(traced, stage_of=[0, 0, 2])
    with pytest.raises(BadInputError, match="later stage 1"):
        cut_model(traced, stage_of=[0, 1, 0])


class _Changes(nn.Module):
    """Changes a view in place; who reads the whole afterwards sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 1)
        self.last = nn.Conv2d(2, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        features = self.conv(images)
        half = features[:, :1]
        half.relu_()
        return self.last(features.sigmoid())  # type: ignore[no-any-return]


def test_a_change_through_a_view_is_kept_or_refused() -> None:
    torch.manual_seed(2)
    model, images = _Changes(), torch.randn(1, 1, 3, 3)
    expected = model(images)
    traced = trace_model(model)
    assert [layer.name for layer in traced.layers] == ["conv", "getitem", "relu_", "sigmoid", "last"]
    for stage_of in ([0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [0, 0, 0, 0, 1]):
        assert torch.equal(train_stages(cut_model(traced, stage_of=stage_of), images), expected), stage_of
    for stage_of in ([0, 0, 1, 1, 1], [0, 1, 1, 2, 2]):
        with pytest.raises(BadInputError, match="relu_ changes in place a tensor that layer sigmoid reads"):
            cut_model(traced, stage_of=stage_of)


class _ChangesAndSends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 1)
        self.last = nn.Conv2d(2, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        features = self.conv(images)
        doubled = features.mul_(2)
        features += 1
        return self.last(doubled) + features.sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize("start", range(1, 6))
def test_whoever_reads_after_a_change_reads_the_changed_value(start: int) -> None:
    torch.manual_seed(2)
    model, images = _ChangesAndSends(), torch.randn(1, 1, 3, 3)
    traced = trace_model(model)
    expected = model(images)
    cut = cut_model(traced, stage_of=[int(place >= start) for place in range(len(traced.layers))])
    assert torch.equal(train_stages(cut, images), expected)


def test_unchanged_semantics_would_be_noticed() -> None:
    """A negative control: without the in-place sum the model gives something else."""
    torch.manual_seed(2)
    model, images = _ChangesAndSends(), torch.randn(1, 1, 3, 3)
    doubled = model.conv(images) * 2
    assert not torch.equal(model(images), model.last(doubled) + (doubled + 1).sum())
    assert torch.equal(model(images), model.last(doubled + 1) + (doubled + 1).sum())


class _OddlyNamed(nn.Module):
    """Its modules are called as facts about stages are."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.inputs = nn.Linear(3, 3)
        self.outputs = nn.Linear(3, 2)

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.outputs(self.inputs(self.layers(images)))
        return result


def test_modules_may_have_any_name() -> None:
    model = _OddlyNamed()
    cut = cut_model(trace_model(model), stage_of=(0, 0, 1, 2))
    values: tuple[Tensor, ...] = (torch.ones(2, 3),)
    for stage in cut.stages:
        values = stage(*values)
    assert torch.equal(values[0], model(torch.ones(2, 3)))
    assert [stage.stage_facts.index for stage in cut.stages] == [0, 1, 2]
