"""1x1 convolutions that oneDNN computes wrongly are computed in another way, or refused."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.core.errors import BadInputError
from drivetrain.models.narrow_convolutions import NarrowConv2d, install_narrow_convolutions
from drivetrain.models.requirements import require_tensor_in_training

# glibc checks its heap at every call, so that a write past the end of a workspace cannot go unnoticed.
_STRICT_HEAP = {"MALLOC_CHECK_": "3", "OMP_NUM_THREADS": "1"}
_TRAIN = """
import torch
from torch import nn
from drivetrain.models.narrow_convolutions import install_narrow_convolutions

torch.manual_seed(0)
layer = nn.Conv2d({channels}, {channels}, 1, stride={stride}).to(memory_format=torch.channels_last)
install_narrow_convolutions(layer)
for _ in range(4):
    images = torch.randn(4, {channels}, 64, 64).contiguous(memory_format=torch.channels_last)
    outputs = layer(images)
    outputs.backward(torch.randn_like(outputs))
    kept = [torch.randn(count) for count in (100, 1000, 10000)]
"""


@pytest.mark.parametrize(("channels", "stride"), [(8, 2), (15, 2), (8, (2, 1))])
def test_the_backward_pass_leaves_the_heap_intact(channels: int, stride: object) -> None:
    code = _TRAIN.format(channels=channels, stride=stride)
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | _STRICT_HEAP, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()


@pytest.mark.parametrize("stride", [2, 3, (1, 2)])
def test_outputs_and_gradients_stay_those_of_the_layer(stride: int | tuple[int, int]) -> None:
    layer = nn.Conv2d(3, 4, 1, stride=stride, dtype=torch.float64)
    images = torch.randn(2, 3, 7, 8, dtype=torch.float64, requires_grad=True)

    def results() -> list[Tensor]:
        outputs = layer(images)
        return [outputs, *torch.autograd.grad(outputs.square().sum(), [images, *layer.parameters()])]

    expected = results()
    assert install_narrow_convolutions(layer) == 1
    for one, other in zip(expected, results(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-12)


class _Named(nn.Conv2d):
    def name(self) -> str:
        return "mine"


class _OwnForward(nn.Conv2d):
    def forward(self, inputs: Tensor) -> Tensor:
        return functional.conv2d(inputs, self.weight, stride=self.stride)


def test_a_layer_stays_the_same_object_of_its_kind() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1, stride=2), _Named(4, 4, 1, stride=2))
    plain, named = model
    calls = []
    named.register_forward_hook(lambda *_: calls.append("called"))
    assert install_narrow_convolutions(model) == 2
    assert model[0] is plain
    assert type(plain) is NarrowConv2d
    assert plain.stride == (2, 2)
    assert isinstance(named, _Named)
    assert named.name() == "mine"
    model(torch.zeros(1, 3, 8, 8))
    assert calls == ["called"]


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(16, 4, 1, stride=2),
        nn.Conv2d(3, 4, 1),
        nn.Conv2d(3, 4, 3, stride=2),
        nn.Conv2d(3, 4, 1, stride=2, padding=1),
        _OwnForward(3, 4, 1, stride=2),
    ],
)
def test_other_layers_stay_as_they_are(layer: nn.Conv2d) -> None:
    kind = type(layer)
    assert install_narrow_convolutions(layer) == 0
    assert type(layer) is kind


class _Functional(nn.Module):
    def __init__(self, *, stride: int) -> None:
        super().__init__()
        self.weight, self.stride = nn.Parameter(torch.ones(4, 3, 1, 1)), stride

    def forward(self, images: Tensor) -> Tensor:
        return functional.conv2d(images, self.weight, stride=self.stride)


@pytest.mark.parametrize("model", [_Functional(stride=2), _OwnForward(3, 4, 1, stride=2)])
def test_a_faulty_call_is_refused_with_its_line_on_a_cpu(model: nn.Module) -> None:
    with pytest.raises(BadInputError, match=r"test_narrow_convolutions\.py line \d+ calls conv2d with a 1x1"):
        require_tensor_in_training(model, image_shape=(3, 8, 8), is_cpu=True)
    require_tensor_in_training(model, image_shape=(3, 8, 8), is_cpu=False)


@pytest.mark.parametrize("model", [_Functional(stride=1), nn.Conv2d(3, 4, 1, stride=2)])
def test_calls_that_work_are_not_refused(model: nn.Module) -> None:
    require_tensor_in_training(model, image_shape=(3, 8, 8), is_cpu=True)
