"""Batch norm in stages that run again for their backward pass: statistics move once."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from drivetrain.layers.batch_norm import BatchNormOwner, install_batch_norm_owner
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup


class _Net(nn.Module):
    """Two batch norms, one of which runs twice in a pass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(3, 4, 3)
        self.once, self.twice = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.twice(self.once(self.convolution(inputs)))
        outputs: Tensor = self.twice(features.square())
        return outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountingGroup(ReplicaGroup):
    """A group of two equal members, of which the other is imagined; counts the sums."""

    size: int = 2
    sums: list[Tensor] = field(default_factory=list)

    def begin_sum(self, values: Tensor) -> Callable[[], object]:
        self.sums.append(values)
        values.mul_(2.0)
        return lambda: None


def _images(micro_batch: int) -> Tensor:
    return torch.randn(4, 3, 7, 7, generator=torch.Generator().manual_seed(micro_batch))


def _train(group: ReplicaGroup, *, stable: bool) -> tuple[_Net, BatchNormOwner]:
    model = _Net()
    owner = install_batch_norm_owner(model, kept_share=0.9, group=group, stable=stable)
    return model, owner


def _plain(group: ReplicaGroup, *, stable: bool) -> dict[str, Tensor]:
    """Three micro-batches, forward and backward at once."""
    model, owner = _train(group, stable=stable)
    for micro_batch in range(3):
        model(_images(micro_batch)).square().sum().backward()
    owner.commit()
    return _state(model)


def _recomputed(group: ReplicaGroup, *, stable: bool, keeps: bool = True) -> dict[str, Tensor]:
    """All forward passes first, then each again with its backward pass, the last one first."""
    model, owner = _train(group, stable=stable)
    for micro_batch in range(3):
        with torch.no_grad(), owner.to_be_recomputed(micro_batch) if keeps else nullcontext():
            model(_images(micro_batch))
    for micro_batch in (0, 2, 1):
        with owner.recomputing(micro_batch):
            outputs = model(_images(micro_batch))
        outputs.square().sum().backward()
    assert not any(layer.kept_moments for layer in owner.layers)
    owner.commit()
    return _state(model)


def _state(model: nn.Module) -> dict[str, Tensor]:
    gradients = {f"{name}.grad": p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {**model.state_dict(), **gradients}


def _equal(expected: dict[str, Tensor], found: dict[str, Tensor], *, part: str) -> bool:
    names = [name for name in expected if part in name]
    assert names
    return all(torch.equal(expected[name], found[name]) for name in names)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("is_grouped", [False, True])
def test_statistics_have_the_bits_of_a_run_without_recomputation(is_grouped: bool, stable: bool) -> None:
    group = _CountingGroup() if is_grouped else ALONE
    expected = _plain(group, stable=stable)
    found = _recomputed(group, stable=stable)
    assert _equal(expected, found, part="running")
    assert _equal(expected, found, part="num_batches_tracked")


def test_gradients_have_the_bits_too() -> None:
    model, owner = _train(_CountingGroup(), stable=False)
    twin, _ = _train(_CountingGroup(), stable=False)
    with torch.no_grad(), owner.to_be_recomputed(0):
        first = model(_images(0))
    with owner.recomputing(0):
        again = model(_images(0))
    assert torch.equal(first, again)
    again.square().sum().backward()
    twin(_images(0)).square().sum().backward()
    assert _equal(_state(twin), _state(model), part=".grad")


def test_without_the_switch_statistics_move_by_other_averages() -> None:
    model, owner = _train(ALONE, stable=False)
    for micro_batch in (0, 1, 1):
        model(_images(micro_batch))
    owner.commit()
    twin, twin_owner = _train(ALONE, stable=False)
    for micro_batch in (0, 1):
        twin(_images(micro_batch))
    with twin_owner.recomputing():
        twin(_images(1))
    assert [len(layer.reported) for layer in twin_owner.layers] == [2, 4]
    twin_owner.commit()
    assert not _equal(_state(model), _state(twin), part="running")
    reference, reference_owner = _train(ALONE, stable=False)
    for micro_batch in (0, 1):
        reference(_images(micro_batch))
    reference_owner.commit()
    assert _equal(_state(reference), _state(twin), part="running")


def test_a_group_adds_up_nothing_again_where_it_kept_its_moments() -> None:
    plain, kept, repeated = _CountingGroup(), _CountingGroup(), _CountingGroup()
    _plain(plain, stable=False)
    _recomputed(kept, stable=False)
    _recomputed(repeated, stable=False, keeps=False)
    moments_per_micro_batch = 3
    assert len(kept.sums) == len(plain.sums)
    assert len(repeated.sums) == len(plain.sums) + 3 * moments_per_micro_batch


@pytest.mark.parametrize("is_grouped", [False, True])
def test_repeated_sums_give_the_same_statistics(is_grouped: bool) -> None:
    group = _CountingGroup() if is_grouped else ALONE
    expected = _plain(group, stable=False)
    assert _equal(expected, _recomputed(group, stable=False, keeps=False), part="running")


def test_what_a_pass_without_a_trace_kept_is_dropped() -> None:
    model, owner = _train(_CountingGroup(), stable=False)
    with owner.to_be_recomputed("probe"):
        model(_images(0))
    assert any(layer.kept_moments for layer in owner.layers)
    owner.forget()
    assert not any(layer.kept_moments for layer in owner.layers)


def test_the_switch_is_back_after_an_error() -> None:
    model, owner = _train(ALONE, stable=False)
    with pytest.raises(RuntimeError), owner.recomputing(1):
        model(torch.zeros(1, 2, 7, 7))
    assert not any(layer.recomputing or layer.pass_key is not None for layer in owner.layers)
