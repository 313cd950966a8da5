"""Classes that extend torch's batch norms: which are recognised, and that they keep what else they do."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.layers.precision_by_layer import install_precision_list
from drivetrain.models.batch_norm_classes import NormForm, norm_form
from drivetrain.models.freeze import freeze_parameters
from drivetrain.pipeline.graph.trace import trace_model
from drivetrain.recipe.params import PrecisionList


class NormAct(nn.BatchNorm2d):
    """Like BatchNormAct2d of timm: it normalises by itself, and has layers that follow."""

    def __init__(self, width: int, *, act: nn.Module | None = None, **options: Any) -> None:
        super().__init__(width, **options)
        self.drop = nn.Identity()
        self.act = act or nn.ReLU(inplace=True)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        uses_batch = self.training or self.running_mean is None
        outputs: Tensor = functional.batch_norm(
            inputs,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            uses_batch,
            self.momentum or 0.0,
            self.eps,
        )
        return self._ended(outputs)

    def _ended(self, outputs: Tensor) -> Tensor:
        ended: Tensor = self.act(self.drop(outputs))
        return ended


class NormActNorm(NormAct):
    """Its layers run in another order than they are registered."""

    def _ended(self, outputs: Tensor) -> Tensor:
        ended: Tensor = self.drop(self.act(outputs)) + 1
        return ended


class Around(nn.BatchNorm2d):
    def forward(self, inputs: Tensor) -> Tensor:
        return torch.tanh(super().forward(inputs * 2))


class OnlyNamed(nn.BatchNorm2d):
    pass


class AnyShape(nn.BatchNorm1d):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.transpose(1, 2)).transpose(1, 2)


class Clamps(nn.BatchNorm2d):
    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        if self.training and self.running_mean is not None:
            self.running_mean.clamp_(-0.1, 0.1)
        return outputs


class Counts(nn.BatchNorm2d):
    calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(inputs)


class Twice(nn.BatchNorm2d):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(super().forward(inputs).relu())


@pytest.mark.parametrize(
    ("norm", "form"),
    [
        (nn.BatchNorm2d(3), NormForm.AROUND),
        (OnlyNamed(3), NormForm.AROUND),
        (Around(3), NormForm.AROUND),
        (AnyShape(3), NormForm.AROUND),
        (NormAct(3), NormForm.TAIL),
        (NormAct(3, act=nn.PReLU()), NormForm.TAIL),
        (NormAct(3, affine=False), NormForm.TAIL),
        (NormAct(3, track_running_stats=False), NormForm.TAIL),
        (NormAct(3).to("meta"), NormForm.TAIL),
        (NormActNorm(3), None),
        (Clamps(3), None),
        (Counts(3), None),
        (Twice(3), None),
        (nn.SyncBatchNorm(3), None),
        (nn.GroupNorm(3, 3), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_a_class_is_recognised_by_what_it_computes(norm: nn.Module, form: NormForm | None) -> None:
    assert norm_form(norm) is form


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), NormAct(4), nn.Conv2d(4, 4, 1), Around(4)).double()


def _images() -> Tensor:
    return torch.randn(6, 3, 5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("stable", [False, True])
def test_the_owner_keeps_what_a_class_does_besides(stable: bool) -> None:
    plain, owned = _net(), _net()
    owner = install_batch_norm_owner(owned, kept_share=None, stable=stable)
    assert owner.unowned == ()
    assert len(owner.layers) == 2
    assert torch.allclose(plain(_images()), owned(_images()), rtol=1e-12, atol=1e-14)
    owner.commit()
    assert torch.allclose(plain[3].running_mean, owned[3].running_mean, rtol=1e-12)  # type: ignore[arg-type]
    owned.load_state_dict(plain.state_dict())
    assert torch.allclose(plain.eval()(_images()), owned.eval()(_images()), rtol=1e-12, atol=1e-14)


def test_an_owned_layer_can_be_copied_and_sent() -> None:
    model = _net()
    install_batch_norm_owner(model, kept_share=None)
    expected = model.eval()(_images())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(_images()), expected)
        assert isinstance(other[1], NormAct)


def test_a_frozen_layer_keeps_what_its_class_does() -> None:
    model = _net()
    model(_images())
    expected = model.eval()(_images())
    freeze_parameters(model, ["1", "3"])
    assert torch.equal(model.train()(_images()), expected)
    assert install_batch_norm_owner(model, kept_share=None).layers == []
    assert torch.equal(model.train()(_images()), expected)


def test_a_class_that_cannot_be_frozen_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), Clamps(4))
    with pytest.raises(Exception, match=r"--freeze cannot freeze the statistics of 1: its class Clamps"):
        freeze_parameters(model, ["1"])


def test_a_trace_takes_it_for_one_layer() -> None:
    traced = trace_model(_net().float())
    paths = [layer.module_path for layer in traced.layers if layer.module_path is not None]
    assert paths == ["0", "1", "2", "3"]


def test_a_precision_list_names_it_as_a_norm() -> None:
    model = _net().float()
    install_precision_list(model, PrecisionList(half=("conv",), float32=("norm",)))
    with torch.autocast("cpu", torch.bfloat16):
        assert model[1](torch.ones(2, 4, 3, 3, dtype=torch.bfloat16)).dtype == torch.float32
