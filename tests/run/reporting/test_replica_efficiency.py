"""What replicas waited for, from hand-made times and from real sums."""

import time

import pytest
import torch
from torch import nn

from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.run.reporting.replica_efficiency import ReplicaTimes, SumSeconds, read_sums, scaling_of
from tests.program.harness import GivenFeed, make_program


def _times(*waits: float, data: float = 0.0, kind: str = "gradient") -> list[ReplicaTimes]:
    return [ReplicaTimes(execution_s=10.0, data_s=data, sums=SumSeconds(**{kind: wait})) for wait in waits]


def test_the_least_wait_is_the_sum_and_the_rest_is_for_stragglers() -> None:
    scaling = scaling_of(_times(1.0, 3.0), images_per_second=100.0)
    assert scaling.gradient_sum == pytest.approx(0.1)
    assert scaling.stragglers == pytest.approx(0.1)
    assert scaling.computing == pytest.approx(0.8)
    assert scaling.to_json()["images_per_second_per_replica"] == 50.0
    assert scaling.to_json()["computing_share"] == 0.8


def test_all_kinds_of_sums_count() -> None:
    sums = SumSeconds(gradient=1.0, batch_norm=2.0, small=0.5)
    times = [ReplicaTimes(execution_s=10.0, data_s=0.5, sums=sums)] * 2
    scaling = scaling_of(times, images_per_second=100.0)
    assert scaling.computing == pytest.approx(0.6)
    assert scaling.to_json()["lost_to"] == {
        "data": 0.05,
        "gradient_sum": 0.1,
        "batch_norm_sum": 0.2,
        "small_sum": 0.05,
        "stragglers": 0.0,
    }


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        (_times(5.0, 5.0), "gradient all-reduces"),
        (_times(5.0, 5.0, kind="batch_norm"), "all-reduces inside batch norm"),
        (_times(5.0, 5.0, kind="small"), "small all-reduces"),
        (_times(0.0, 8.0), "slower ranks"),
        (_times(0.1, 0.1, data=5.0), "data"),
    ],
)
def test_poor_scaling_names_its_reason(times: list[ReplicaTimes], reason: str) -> None:
    scaling = scaling_of(times, images_per_second=10.0)
    assert f"mostly wait for {reason}" in scaling.sentence()


def test_good_scaling_gives_no_advice() -> None:
    assert "mostly" not in scaling_of(_times(0.1, 0.1), images_per_second=10.0).sentence()


def test_what_could_not_be_timed_has_no_number() -> None:
    known, unknown = SumSeconds(), SumSeconds(gradient=None)
    times = [ReplicaTimes(execution_s=10.0, data_s=1.0, sums=sums) for sums in (known, unknown)]
    scaling = scaling_of(times, images_per_second=10.0)
    assert scaling.computing is None
    assert scaling.to_json()["lost_to"] == {"data": 0.1}
    assert "computing_share" not in scaling.to_json()
    assert "this device cannot time all-reduces" in scaling.sentence()


def test_seconds_of_one_part_of_a_run_are_differences() -> None:
    before, after = SumSeconds(1.0, 2.0, None), SumSeconds(4.0, 2.5, 7.0)
    assert after.added(before, factor=-1.0) == SumSeconds(3.0, 0.5, None)


class _Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.norm(images).mean((2, 3)))
        return outputs


_LATE_S = 0.4


def _waits_for_a_late_rank(group: ReplicaGroup, norm_group_size: int) -> SumSeconds:
    """The last rank is late for an update; what every rank has waited for."""
    torch.manual_seed(0)
    images, labels = torch.randn(8, 3, 4, 4), torch.arange(8) % 10
    feed = GivenFeed(images, labels, micro=4, group=group)
    program = make_program(_Normed(), feed, norm_group_size=norm_group_size, updates=2)
    program.run_update(0)
    before = read_sums(program)
    if group.rank == group.size - 1:
        time.sleep(_LATE_S)
    program.run_update(1)
    return read_sums(program).added(before, factor=-1.0)


@pytest.mark.parametrize(("norm_group_size", "kind"), [(1, "gradient"), (2, "batch_norm")])
def test_the_first_sum_that_meets_a_late_rank_is_the_one_that_waits(
    rank_pool: RankPool, norm_group_size: int, kind: str
) -> None:
    patient, late = rank_pool.run(_waits_for_a_late_rank, norm_group_size, ranks=2)
    for name in SumSeconds._fields:
        waited = getattr(patient, name)
        assert waited is not None
        assert (waited > _LATE_S / 2) == (name == kind)
    assert all(part is not None and part < _LATE_S / 2 for part in late)
