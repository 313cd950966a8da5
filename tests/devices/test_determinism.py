"""Deterministic algorithms: what is set and taken back, and which layers call operations that have none."""

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import deterministic

from drivetrain.core.errors import BadInputError
from drivetrain.devices.backend_settings import training_backends
from drivetrain.devices.blas_workspace import check_workspace, fixed_workspace
from drivetrain.devices.determinism import Operation, noting_operations
from drivetrain.devices.device import Device

CPU = Device(torch_device=torch.device("cpu"), reason="test")
_MEMORY: Any = deterministic
VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
SAID = "does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'"


@pytest.fixture(autouse=True)
def without_workspace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    yield
    assert not torch.are_deterministic_algorithms_enabled()


def _settings() -> tuple[Any, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        _MEMORY.fill_uninitialized_memory,
        cudnn.benchmark,
        cudnn.deterministic,
        os.environ.get(VARIABLE),
    )


def test_everything_is_deterministic_inside_and_as_it_was_after() -> None:
    before = _settings()
    with training_backends(CPU, is_deterministic=True):
        assert _settings() == (True, True, False, False, True, ":4096:8")
    assert _settings() == before
    with training_backends(CPU):
        assert _settings() == (False, False, True, True, before[4], None)


@pytest.mark.parametrize("given", [":16:8", ":4096:8"])
def test_a_deterministic_workspace_that_a_user_has_set_stays(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    check_workspace()
    with fixed_workspace(is_on=True):
        assert os.environ[VARIABLE] == given
    assert os.environ[VARIABLE] == given


def test_another_workspace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_workspace()
    monkeypatch.setenv(VARIABLE, ":0:0")
    with pytest.raises(BadInputError, match=r"needs CUBLAS_WORKSPACE_CONFIG=:4096:8, but .* to ':0:0'"):
        check_workspace()


class _Unpooling(nn.Module):
    """torch says of unpooling, also on a CPU, that it is not deterministic."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)

    def forward(self, images: Tensor) -> Tensor:
        values, places = self.pool(self.conv(images))
        unpooled: Tensor = self.unpool(values, places)
        return unpooled


def test_the_layer_that_calls_an_operation_without_deterministic_algorithm_is_named() -> None:
    model = _Unpooling()
    with training_backends(CPU, is_deterministic=True), noting_operations(model) as found:
        for _ in range(2):
            model(torch.ones(1, 1, 4, 4)).sum().backward()
    assert found == [Operation("max_unpooling2d_forward_out", ("unpool",))]
    assert "for max_unpooling2d_forward_out, which layer unpool calls, on this device" in found[0].sentence
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_torch_says_nothing_itself(recwarn: pytest.WarningsRecorder) -> None:
    with training_backends(CPU, is_deterministic=True):
        _Unpooling()(torch.ones(1, 1, 4, 4))
    assert not any("deterministic" in str(warning.message) for warning in recwarn)


def test_a_model_that_can_be_deterministic_is_not_named_and_other_warnings_get_through(
    recwarn: pytest.WarningsRecorder,
) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    with noting_operations(model) as found:
        model(torch.ones(1, 1, 4, 4)).sum().backward()
        warnings.warn("something else", stacklevel=1)
    assert found == []
    assert [str(warning.message) for warning in recwarn] == ["something else"]


def test_warnings_that_the_caller_ignores_stay_ignored(recwarn: pytest.WarningsRecorder) -> None:
    warnings.filterwarnings("ignore", message="something else")
    with noting_operations(nn.ReLU()):
        warnings.warn("something else", stacklevel=1)
        warnings.warn("something new", stacklevel=1)
    assert [str(warning.message) for warning in recwarn] == ["something new"]


def test_an_operation_of_the_backward_pass_is_found_by_its_kernel() -> None:
    """On CUDA, the warnings of a backward pass come together when it ends, and name kernels."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d(2), nn.Sequential(nn.AdaptiveAvgPool2d(2)))
    with noting_operations(model) as found:
        model(torch.ones(1, 1, 6, 6)).sum().backward()
        warnings.warn(f"adaptive_avg_pool2d_backward_cuda {SAID}", stacklevel=1)
        warnings.warn(f"nll_loss2d_forward_out_cuda_template {SAID}", stacklevel=1)
    assert found == [
        Operation("adaptive_avg_pool2d_backward_cuda", ("1", "2.0")),
        Operation("nll_loss2d_forward_out_cuda_template"),
    ]
    assert "which layer 1 and 1 more calls" in found[0].sentence
    assert "for nll_loss2d_forward_out_cuda_template on this device" in found[1].sentence
