"""`--freeze`: what stops, what stands still with it, and patterns that cannot be meant."""

import pickle
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.models.create import create_model
from drivetrain.models.freeze import FrozenBatchNorm, freeze_parameters, idle_freeze_norm
from drivetrain.optim.flat_parameters import FlatParameters


def build() -> nn.Module:
    return create_model("cifar_resnet8", image_size=8)


def trainable(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


STEM = ["conv1_conv.weight", "conv1_bn.weight", "conv1_bn.bias"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("conv1_*", STEM),
        ("conv1_*.*", STEM),
        ("conv1_b?", STEM[1:]),
        ("conv1_conv", STEM[:1]),
        ("conv1_bn.bias", STEM[2:]),
    ],
)
def test_layers_and_parameters_are_matched(pattern: str, expected: list[str]) -> None:
    model = build()
    assert freeze_parameters(model, [pattern]) == expected
    assert set(trainable(model)) == {name for name, _ in model.named_parameters()} - set(expected)


def test_outer_modules_are_matched() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.Linear(2, 2))
    assert freeze_parameters(model, ["0"]) == ["0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias"]
    assert trainable(model) == ["1.weight", "1.bias"]


def test_nothing_asked_changes_nothing() -> None:
    model = build()
    assert freeze_parameters(model, ()) == []
    assert not any(isinstance(module, FrozenBatchNorm) for module in model.modules())


def test_batch_norms_stand_still_only_when_all_of_them_is_frozen() -> None:
    model = build()
    freeze_parameters(model, ["conv1_bn", "conv2_block1_layer1_bn.bias"])
    assert isinstance(model.get_submodule("conv1_bn"), FrozenBatchNorm)
    assert isinstance(model.get_submodule("conv2_block1_layer1_bn"), nn.BatchNorm2d)


def test_a_frozen_model_trains_around_its_frozen_part() -> None:
    model = build()
    names = list(model.state_dict())
    freeze_parameters(model, ["conv1_*", "conv2_*"])
    assert list(model.state_dict()) == names
    before = {name: value.clone() for name, value in model.state_dict().items()}
    owner = install_batch_norm_owner(model, kept_share=None)
    parameters = FlatParameters(model)
    assert {segment.name for segment in parameters.segments} == set(trainable(model))
    model.train()
    model(torch.rand(4, 3, 8, 8)).square().sum().backward()
    owner.commit()
    parameters.values.sub_(parameters.gradients)
    changed = {
        name
        for name, value in model.state_dict().items()
        if not torch.equal(value, before[name]) and "num_batches" not in name
    }
    assert changed
    assert not {name for name in changed if name.startswith(("conv1_", "conv2_"))}
    assert "conv3_block1_layer1_bn.running_mean" in changed


def test_a_frozen_batch_norm_normalises_by_its_statistics_in_training() -> None:
    original = nn.BatchNorm2d(2)
    original.running_mean = torch.tensor([1.0, 2.0])
    images = torch.rand(3, 2, 4, 4)
    expected = original.eval()(images)
    assert torch.equal(FrozenBatchNorm(original).train()(images), expected)


@pytest.mark.parametrize(
    ("patterns", "part"),
    [
        (["conv1_convv"], "--freeze conv1_convv matches no parameter and no layer of the model; "),
        (["conv1_convv"], "--freeze conv1_conv works."),
        (["fc_layer", ""], "--freeze  matches no parameter"),
        (["zzz"], "--freeze conv1_conv works."),
        (["*"], "--freeze * freezes every parameter, so there is nothing to train; leave fc_layer out."),
    ],
)
def test_refused(patterns: list[str], part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        freeze_parameters(build(), patterns)
    assert part in str(caught.value)


class _Segmenter(nn.Module):
    """As those of torchvision and of segmentation_models_pytorch, whose parts have these names."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1)))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["backbone", "classifier", "aux_classifier"], "backbone"),
        (["encoder", "decoder", "segmentation_head"], "encoder"),
    ],
)
def test_the_backbone_of_a_segmenter_is_the_part_that_comes_pretrained(
    names: list[str], expected: str
) -> None:
    model = _Segmenter(*names)
    frozen = freeze_parameters(model, ["backbone"])
    assert frozen == [name for name, _ in model.named_parameters() if name.startswith(expected)]


def test_the_backbone_of_a_classifier_is_everything_but_its_head() -> None:
    model = build()
    freeze_parameters(model, ["backbone"])
    assert trainable(model) == ["fc_layer.weight", "fc_layer.bias"]
    assert not any(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def test_a_head_alone_has_no_backbone() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(BadInputError, match=r"--freeze backbone freezes nothing, because .* only a head"):
        freeze_parameters(model, ["backbone"])


class _NormAct(nn.BatchNorm2d):
    """As timm's BatchNormAct2d: what follows the batch norm is a part of it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Dropout(0.5), nn.ReLU()

    def forward(self, input: Tensor) -> Tensor:
        assert self.momentum is not None
        assert self.num_batches_tracked is not None
        if self.training:
            self.num_batches_tracked.add_(1)
        statistics = (self.running_mean, self.running_var)
        outputs = nn.functional.batch_norm(
            input, *statistics, self.weight, self.bias, self.training, self.momentum, self.eps
        )
        activated: Tensor = self.act(self.drop(outputs))
        return activated


class _Doubling(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(2 * super().forward(input))


def _with_norms() -> nn.Sequential:
    torch.manual_seed(0)
    norms = (nn.BatchNorm2d(3), _NormAct(3), nn.BatchNorm2d(3, affine=False), nn.BatchNorm2d(3))
    norms[-1].track_running_stats, norms[-1].running_mean, norms[-1].running_var = False, None, None
    return nn.Sequential(nn.Conv2d(1, 3, 3), *norms, nn.Flatten(), nn.Linear(12, 2))


def test_all_batch_norms_stand_still_if_asked() -> None:
    model = _with_norms()
    assert freeze_parameters(model, (), norms=True) == ["1.weight", "1.bias", "2.weight", "2.bias"]
    assert [isinstance(module, FrozenBatchNorm) for module in list(model)[1:5]] == [True, True, True, False]
    assert trainable(model) == ["0.weight", "0.bias", "4.weight", "4.bias", "6.weight", "6.bias"]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    install_batch_norm_owner(model, kept_share=None)
    model.train()
    model(torch.rand(4, 1, 4, 4)).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert idle_freeze_norm(True, model) == []


def test_frozen_ones_follow_their_statistics_if_asked() -> None:
    model = build()
    freeze_parameters(model, ["backbone"], norms=False)
    assert trainable(model) == ["fc_layer.weight", "fc_layer.bias"]
    owner = install_batch_norm_owner(model, kept_share=None)
    before = owner.statistics[0].clone()
    model.train()(torch.rand(4, 3, 8, 8))
    owner.commit()
    assert not torch.equal(owner.statistics[0], before)
    assert idle_freeze_norm(False, model) == []


@pytest.mark.parametrize(
    "copied", [lambda norm: norm, deepcopy, lambda norm: pickle.loads(pickle.dumps(norm))]
)
def test_a_batch_norm_of_a_library_keeps_what_it_does_besides(copied: Any) -> None:
    original = _NormAct(3)
    original.running_mean = torch.tensor([0.1, 0.2, 0.3])
    original.drop.p = 0.0
    images = torch.randn(4, 3, 5, 5)
    expected = original.eval()(images).clone()
    model = nn.Sequential(original, nn.Conv2d(3, 1, 1))
    freeze_parameters(model, ["0"])
    assert model[0] is original
    norm: Any = copied(original).train()
    assert isinstance(norm, _NormAct)
    assert type(norm).__name__ == "_NormAct"
    assert torch.equal(norm(images), expected)
    assert torch.equal(norm.state_dict()["running_mean"], torch.tensor([0.1, 0.2, 0.3]))
    assert norm.drop.training
    assert not torch.equal(_NormAct(3).train()(images), expected)


def test_norms_that_cannot_be_frozen_or_kept_going_are_said() -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    freeze_parameters(plain, (), norms=True)
    (none,) = idle_freeze_norm(True, plain)
    assert none == "--freeze-norm True has no effect: the model has no batch norm with running statistics."
    (unfrozen,) = idle_freeze_norm(False, build())
    assert unfrozen == "--freeze-norm False has no effect: no batch norm of the model is frozen by --freeze."
    with pytest.raises(BadInputError, match=r"--freeze-norm True freezes every parameter, .* leave it out"):
        freeze_parameters(nn.Sequential(nn.BatchNorm2d(3)), (), norms=True)


@pytest.mark.parametrize(
    ("patterns", "norms", "part"),
    [
        (["0"], None, "--freeze cannot freeze the statistics of 0: its class _Doubling extends a batch norm"),
        (["0"], None, "changes how it computes; --freeze-norm False lets it update them."),
        ([], True, "--freeze-norm True cannot freeze the statistics of 0"),
    ],
)
def test_a_norm_that_computes_something_else_is_refused(
    patterns: list[str], norms: bool | None, part: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        freeze_parameters(nn.Sequential(_Doubling(3), nn.Conv2d(3, 1, 1)), patterns, norms=norms)
    assert part in str(caught.value)
    freeze_parameters(nn.Sequential(_Doubling(3), nn.Conv2d(3, 1, 1)), ["0"], norms=False)


@pytest.mark.parametrize(("pattern", "is_frozen"), [("backbone", True), ("0", False), ("1", None)])
def test_norms_without_parameters_stand_still_with_the_part_they_lie_in(
    pattern: str, is_frozen: bool | None
) -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3, affine=False), nn.Flatten(), nn.Linear(12, 2))
    if is_frozen is None:
        with pytest.raises(BadInputError, match="matches no parameter"):
            freeze_parameters(model, [pattern])
        return
    freeze_parameters(model, [pattern])
    assert isinstance(model[1], FrozenBatchNorm) == is_frozen
