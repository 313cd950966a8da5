"""Which values of a user's modules a forward pass in training changes."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from drivetrain.models.module_values import moving_places, passing_places, was_rehearsed
from drivetrain.models.rehearsal import rehearse

SHAPE = (3, 8, 8)
LARGE = 10**12


class _FunctionalNorm(nn.Module):
    mean: Tensor
    variance: Tensor
    calls: Tensor
    still: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3), persistent=False)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("still", torch.ones(3, dtype=torch.int64))

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return functional.batch_norm(images, self.mean, self.variance, training=self.training) * self.still[0]


class _Everything(nn.Module):
    """Changes values of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3, 1, 1), 2.0))
        self.anew = torch.zeros(())
        self.calls = 0
        self.is_warm = False
        self.late: Tensor | None = None
        self.seen: dict[str, Any] = {"calls": 0}
        self.size = (3, 8)
        self.scale = 1.5
        self.table = torch.ones(3)

    def forward(self, images: Tensor) -> Tensor:
        self.weight.data.clamp_(max=1.0)
        self.anew = self.anew + 1
        self.calls += 1
        self.is_warm = True
        self.late = images.mean().detach() if self.late is None else self.late + 1
        self.seen["calls"] += 1
        return images * self.weight * self.scale * self.table[0]


def test_buffers_that_a_pass_changes_are_told_from_those_that_stand_still() -> None:
    model = nn.Sequential(_FunctionalNorm()).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = rehearse(model, image_shape=SHAPE)
    assert found is not None
    assert found.moving == {"0.mean": True, "0.variance": True, "0.calls": False}
    assert not model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("flops", [0, LARGE], ids=["small", "large"])
def test_values_of_every_kind_are_found_and_noted(flops: int) -> None:
    model = nn.Sequential(_Everything())
    found = rehearse(model, image_shape=SHAPE, flops=flops)
    assert found is not None
    names = {"0.anew", "0.calls", "0.is_warm", "0.late", "0.seen"}
    # Without values, a change through .data cannot be seen.
    assert found.moving.keys() == names | (set() if flops else {"0.weight"})
    assert {place.name for place in moving_places(model)} == found.moving.keys()
    inner = model[0]
    assert isinstance(inner, _Everything)
    assert (inner.calls, inner.late, inner.seen, float(inner.anew)) == (0, None, {"calls": 0}, 0.0)


@pytest.mark.parametrize("flops", [0, LARGE], ids=["small", "large"])
def test_large_models_are_looked_at_without_values(flops: int) -> None:
    model = nn.Sequential(_FunctionalNorm(), parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)))
    found = rehearse(model, image_shape=SHAPE, flops=flops)
    assert found is not None
    ours = {"0.mean", "0.variance", "0.calls"}
    spectral = {f"1.parametrizations.weight.0._{name}" for name in "uv"}
    assert found.moving.keys() == ours | spectral


class _Keeping(nn.Module):
    """Keeps activations, for somebody to look at."""

    def __init__(self, reads: bool = False) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)
        self.kept: Tensor | None = None
        self.by_name: dict[str, Tensor] = {}
        self._reads = reads

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.layer(images)
        if self._reads and self.kept is not None:
            outputs = outputs + self.kept.mean()
        self.kept = outputs.detach()
        self.by_name["outputs"] = outputs
        return outputs


@pytest.mark.parametrize("reads", [False, True])
def test_activations_that_a_model_keeps_are_state_only_if_it_reads_them(reads: bool) -> None:
    model = _Keeping(reads)
    found = rehearse(model, image_shape=SHAPE)
    assert found is not None
    names = {"kept", "by_name"}
    assert found.moving.keys() == (names if reads else set())
    assert {place.name for place in passing_places(model)} == (set() if reads else names)


def test_generators_are_left_as_they_were() -> None:
    states = [torch.get_rng_state(), random.getstate(), repr(np.random.get_state(legacy=False))]
    rehearse(nn.Sequential(nn.Dropout()), image_shape=SHAPE)
    after = [torch.get_rng_state(), random.getstate(), repr(np.random.get_state(legacy=False))]
    assert torch.equal(states[0], after[0])  # type: ignore[arg-type]
    assert states[1:] == after[1:]


def test_a_model_that_cannot_run_tells_nothing() -> None:
    model = nn.Sequential(_FunctionalNorm(), nn.Linear(1, 1))
    assert rehearse(model, image_shape=SHAPE) is None
    assert not was_rehearsed(model)
