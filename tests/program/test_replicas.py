"""Replicas compute what one process computes: the worked cases and promise 1, on real processes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from drivetrain.models.create import create_model
from drivetrain.program.gradient_rules import GradientRules
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.verify.measure import Starts
from tests.program.harness import GivenFeed, SquaredError, make_program, worst_error

Arrays = dict[str, NDArray[Any]]
UPDATES = 4


def _line(weight: float) -> nn.Linear:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, weight)
    return layer


def _one_update_of_a_line(group: ReplicaGroup, samples: int, micro: int) -> float:
    model = _line(1.0)
    feed = GivenFeed(torch.ones(samples, 1), torch.full((samples,), 2.0), micro=micro, group=group)
    make_program(model, feed, task=SquaredError()).run_update(0)
    return model.weight.item()


@pytest.mark.parametrize(("samples", "replicas", "micro"), [(4, 2, 2), (4, 2, 1), (8, 2, 2), (4, 4, 1)])
def test_cases_46_to_50_the_mean_over_the_global_batch(
    rank_pool: RankPool, samples: int, replicas: int, micro: int
) -> None:
    assert rank_pool.run(_one_update_of_a_line, samples, micro, ranks=replicas) == [3.0] * replicas


def _loss_and_metric(group: ReplicaGroup, micro: int) -> tuple[float, float]:
    values = torch.arange(4.0)
    feed = GivenFeed(values.view(4, 1), values, micro=micro, group=group)
    program = make_program(_line(0.0), feed, task=SquaredError())
    program.run_update(0)
    records = program.records
    return float(records.read("loss", 0, 1)[0]), float(records.read("accuracy", 0, 1)[0])


@pytest.mark.parametrize(("micro", "replicas"), [(2, 2), (1, 4), (1, 2)])
def test_cases_57_to_66_the_mean_loss_and_metric(rank_pool: RankPool, micro: int, replicas: int) -> None:
    assert rank_pool.run(_loss_and_metric, micro, ranks=replicas) == [(3.5, 3.5)] * replicas


class _Constant(nn.Module):
    """Its output's gradient by every weight is 1 for every sample."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(5))

    def forward(self, images: Tensor) -> Tensor:
        return self.weights.sum().expand(len(images))


class _Output:
    metric = "accuracy"

    def losses_and_scores(self, outputs: Tensor, _targets: Tensor) -> tuple[Tensor, Tensor]:
        return outputs, outputs.detach()


def _constant_gradient(group: ReplicaGroup, accumulation: int, overlaps: bool) -> list[float]:
    samples = 2 * accumulation * group.size
    feed = GivenFeed(torch.ones(samples, 1), torch.ones(samples), micro=2, group=group)
    program = make_program(_Constant(), feed, task=_Output(), rate=0.0, overlaps=overlaps)
    program.run_update(0)
    gradient = dict(program.parameters.named_views(program.parameters.gradients))["weights"]
    return gradient.tolist()


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("accumulation", [1, 2, 8])
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_every_gradient_of_a_constant_is_exactly_one(
    rank_pool: RankPool, accumulation: int, replicas: int, overlaps: bool
) -> None:
    found = rank_pool.run(_constant_gradient, accumulation, overlaps, ranks=replicas)
    assert found == [[1.0] * 5] * replicas


def _images(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(16, 3, 8, 8, generator=generator, dtype=torch.float64).to(dtype)
    return images, torch.randint(0, 10, (16,), generator=generator)


def _program(
    group: ReplicaGroup, *, name: str, dtype: torch.dtype, micro: int, norm_group_size: int = 1
) -> TrainingProgram:
    model = create_model(name, channels=3, image_size=8, num_classes=10).to(dtype)
    feed = GivenFeed(*_images(dtype), micro=micro, group=group)
    rules = GradientRules(clip_norm=0.5, l2_regularization=1e-3, loss_scaling=8.0)
    return make_program(model, feed, rate=0.05, rules=rules, norm_group_size=norm_group_size)


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """Gradients and losses of all updates, and the weights and statistics after the last."""

    gradients: list[Arrays]
    losses: NDArray[Any]
    state: Arrays


def _measured(
    group: ReplicaGroup,
    name: str,
    dtype: torch.dtype,
    micro: int,
    norm_group_size: int = 1,
    starts: Starts | None = None,
) -> _Measured:
    """A few updates, each from the state that another program had before it where `starts` says so."""
    program = _program(group, name=name, dtype=dtype, micro=micro, norm_group_size=norm_group_size)
    program.model.train()
    gradients = []
    for update in range(UPDATES):
        if starts is not None:
            starts.begin(program, update)
        program.run_update(update)
        views = program.parameters.named_views(program.parameters.gradients)
        gradients.append({key: value.double().numpy().copy() for key, value in views})
    state = {key: value.double().numpy().copy() for key, value in program.model.state_dict().items()}
    return _Measured(gradients=gradients, losses=program.records.read("loss", 0, UPDATES), state=state)


def _check(expected: _Measured, found: _Measured, *, tolerance: float) -> None:
    for one, other in zip(expected.gradients, found.gradients, strict=True):
        assert worst_error(one, other) <= tolerance
    assert np.abs(expected.losses - found.losses).max() <= tolerance
    assert worst_error(expected.state, found.state) <= tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize(("replicas", "micro"), [(2, 4), (4, 4), (4, 2)])
def test_replicas_give_the_gradients_and_losses_of_one_process(
    rank_pool: RankPool, tmp_path: Path, replicas: int, micro: int, dtype: torch.dtype, tolerance: float
) -> None:
    lead, follow = (Starts(folder=str(tmp_path), leads=leads) for leads in (True, False))
    work = ("cifar_resnet8", dtype, micro, 1)
    alone = rank_pool.run(_measured, *work, lead, ranks=1)[0]
    for found in rank_pool.run(_measured, *work, follow, ranks=replicas):
        _check(alone, found, tolerance=tolerance)
    first = alone.gradients[0]
    spoilt = {key: value * 1.001 for key, value in first.items()}
    assert worst_error(first, spoilt) > tolerance


@pytest.mark.parametrize(("replicas", "group_size", "micro"), [(2, 2, 2), (4, 2, 2), (4, 4, 1)])
def test_a_group_normalises_like_one_process_with_all_its_samples(
    rank_pool: RankPool, tmp_path: Path, replicas: int, group_size: int, micro: int
) -> None:
    lead, follow = (Starts(folder=str(tmp_path), leads=leads) for leads in (True, False))
    work = ("cifar_resnet8", torch.float64)
    expected = rank_pool.run(_measured, *work, micro * group_size, 1, lead, ranks=1)[0]
    for found in rank_pool.run(_measured, *work, micro, group_size, follow, ranks=replicas):
        _check(expected, found, tolerance=1e-10)


def test_case_85_a_group_of_two_differs_from_no_group(rank_pool: RankPool) -> None:
    grouped = rank_pool.run(_measured, "cifar_resnet8", torch.float64, 2, 2, ranks=2)[0]
    local = rank_pool.run(_measured, "cifar_resnet8", torch.float64, 2, 1, ranks=2)[0]
    assert worst_error(grouped.gradients[0], local.gradients[0]) > 1e-3


def test_all_replicas_are_equal_bit_for_bit(rank_pool: RankPool) -> None:
    found = rank_pool.run(_measured, "cifar_resnet8", torch.float32, 2, ranks=4)
    for other in found[1:]:
        assert other.losses.tobytes() == found[0].losses.tobytes()
        assert all(value.tobytes() == found[0].state[key].tobytes() for key, value in other.state.items())


def _bytes_per_update(group: ReplicaGroup) -> tuple[int, list[int]]:
    """What goes through all-reduce in one update, beside the length of the gradient."""
    program = _program(group, name="cifar_resnet8", dtype=torch.float32, micro=2)
    program.run_update(0)
    seen: list[int] = []
    all_reduce = dist.all_reduce

    def counting(values: Tensor, *arguments: Any, **options: Any) -> Any:
        seen.append(values.nbytes)
        return all_reduce(values, *arguments, **options)

    with mock.patch.object(dist, "all_reduce", counting):
        program.run_update(1)
    return program.parameters.gradients.nbytes, seen


def test_each_gradient_is_summed_once_per_update_and_nothing_else_of_that_size(rank_pool: RankPool) -> None:
    for gradient_bytes, seen in rank_pool.run(_bytes_per_update, ranks=2):
        large = [size for size in seen if size > gradient_bytes // 10]
        assert sum(large) == gradient_bytes
        assert sum(seen) - sum(large) < gradient_bytes // 20


class _PoisonedOnOneRank(nn.Module):
    def __init__(self, *, poisoned: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.poisoned = poisoned

    def forward(self, images: Tensor) -> Tensor:
        outputs = images[:, 0] * self.weight
        return outputs * float("nan") if self.poisoned else outputs


def _loss_with_a_poisoned_rank(group: ReplicaGroup) -> bool:
    feed = GivenFeed(torch.ones(4, 1), torch.ones(4), micro=2, group=group)
    model = _PoisonedOnOneRank(poisoned=group.rank == 1)
    program = make_program(model, feed, task=SquaredError())
    program.run_update(0)
    return bool(np.isfinite(program.records.read("loss", 0, 1)[0]))


def test_a_loss_that_is_not_finite_is_so_on_all_ranks(rank_pool: RankPool) -> None:
    assert rank_pool.run(_loss_with_a_poisoned_rank, ranks=2) == [False, False]


def _votes(group: ReplicaGroup) -> list[bool]:
    feed = GivenFeed(torch.ones(4, 1), torch.ones(4), micro=2, group=group)
    program = make_program(_line(1.0), feed, task=SquaredError())
    agreed = []
    for update in range(3):
        program.rank_sums.wants_stop = lambda: group.rank == 1 and update == 1  # noqa: B023
        program.run_update(update)
        agreed.append(program.rank_sums.stop_votes.agreed)
    return agreed


def test_one_rank_that_is_asked_to_stop_stops_all_at_the_same_update(rank_pool: RankPool) -> None:
    assert rank_pool.run(_votes, ranks=2) == [[False, True, True]] * 2
