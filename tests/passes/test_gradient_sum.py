from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device
from drivetrain.optim.flat_parameters import FlatParameters, cut_into_buckets
from drivetrain.passes.gradient_sum import DEFAULT_BUFFER_BYTES, GradientSum, pays_to_overlap
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup


class _Net(nn.Module):
    """Convolution, linear layers, and one linear layer that a forward pass may leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.hidden = nn.Linear(16, 40)
        self.optional = nn.Linear(40, 40)
        self.last = nn.Linear(40, 3)

    def forward(self, images: Tensor, *, skips: bool = False) -> Tensor:
        hidden = self.hidden(self.conv(images).flatten(1)).relu()
        output: Tensor = self.last(hidden if skips else self.optional(hidden))
        return output


def _net() -> tuple[_Net, FlatParameters]:
    torch.manual_seed(0)
    model = _Net()
    return model, FlatParameters(model)


def _update(
    group: ReplicaGroup, *, overlaps: bool, micro_batches: int = 2, skips: bool = False, max_bytes: int = 600
) -> dict[str, Any]:
    """One update of the net on samples of this rank, and everything that was summed in it."""
    model, parameters = _net()
    sums = GradientSum(parameters, model=model, group=group, max_buffer_bytes=max_bytes, overlaps=overlaps)
    places = {name: p.grad.data_ptr() for name, p in model.named_parameters() if p.grad is not None}
    summed: list[tuple[int, int]] = []

    def all_reduce(values: Tensor, **options: Any) -> Any:
        summed.append((int(values.storage_offset()), values.nbytes))
        return real_all_reduce(values, **options)

    real_all_reduce = dist.all_reduce
    generator = torch.Generator().manual_seed(group.rank)
    with mock.patch.object(dist, "all_reduce", all_reduce):
        for index in range(micro_batches):
            if index + 1 == micro_batches:
                sums.begin_last_pass()
            model(torch.randn(5, 2, 4, 4, generator=generator), skips=skips).square().sum().backward()
        issued_early = sums.sums_issued
        own = parameters.gradients.clone()
        sums.finish()
    after = {name: p.grad.data_ptr() for name, p in model.named_parameters() if p.grad is not None}
    assert places == after
    assert sums.bytes_summed == sum(size for _, size in summed)
    assert sums.sums_issued == len(summed)
    return {"own": own, "gradients": parameters.gradients, "summed": summed, "early": issued_early}


def _call_update(group: ReplicaGroup, options: dict[str, Any]) -> dict[str, Any]:
    return _update(group, **options)


def _sum_of_integers(group: ReplicaGroup) -> bool:
    _, parameters = _net()
    values = torch.arange(len(parameters.gradients)) % 1000
    parameters.gradients.copy_(values * (group.rank + 1))
    GradientSum(parameters, group=group, max_buffer_bytes=1000, overlaps=False).finish()
    return torch.equal(parameters.gradients, (values * 3).float())


def test_whole_numbers_add_up_exactly(rank_pool: RankPool) -> None:
    assert rank_pool.run(_sum_of_integers, ranks=2) == [True, True]


def test_the_sum_is_that_of_both_ranks_gradients(rank_pool: RankPool) -> None:
    first, second = rank_pool.run(_call_update, {"overlaps": False}, ranks=2)
    assert not torch.equal(first["own"], second["own"])
    assert torch.equal(first["gradients"], first["own"] + second["own"])
    assert torch.equal(first["gradients"], second["gradients"])


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_overlap_changes_no_bit_and_no_order(rank_pool: RankPool, skips: bool, micro_batches: int) -> None:
    options = {"skips": skips, "micro_batches": micro_batches}
    overlapped = rank_pool.run(_call_update, options | {"overlaps": True}, ranks=2)
    plain = rank_pool.run(_call_update, options | {"overlaps": False}, ranks=2)
    for one, other in zip(overlapped, plain, strict=True):
        assert torch.equal(one["gradients"], other["gradients"])
        assert one["summed"] == other["summed"]
        assert other["early"] == 0
    # Without the optional layer's gradient only the last layer's bucket is complete before the end.
    assert [one["early"] for one in overlapped] == ([1, 1] if skips else [len(plain[0]["summed"])] * 2)


@pytest.mark.parametrize("overlaps", [False, True])
def test_every_byte_of_the_gradient_is_summed_once_the_last_first(
    rank_pool: RankPool, overlaps: bool
) -> None:
    for result in rank_pool.run(_call_update, {"overlaps": overlaps}, ranks=2):
        starts = [start for start, _ in result["summed"]]
        assert len(starts) > 2
        assert starts == sorted(starts, reverse=True)
        assert sum(size for _, size in result["summed"]) == result["gradients"].nbytes


def _uneven_update(group: ReplicaGroup) -> dict[str, Any]:
    return _update(group, overlaps=True, skips=group.rank == 1)


def test_a_layer_that_only_one_rank_ran_is_summed_too(rank_pool: RankPool) -> None:
    first, second = rank_pool.run(_uneven_update, ranks=2)
    assert torch.equal(first["gradients"], second["gradients"])
    assert first["summed"] == second["summed"]
    _, parameters = _net()
    optional = dict(parameters.named_views(first["gradients"]))["optional.weight"]
    assert optional.abs().sum() > 0


def _update_without_sum(group: ReplicaGroup) -> Tensor:
    model, parameters = _net()
    model(torch.full((1, 2, 4, 4), float(group.rank + 1))).sum().backward()
    return parameters.gradients


def test_without_the_sum_ranks_have_other_gradients(rank_pool: RankPool) -> None:
    first, second = rank_pool.run(_update_without_sum, ranks=2)
    assert not torch.equal(first, second)


def _second_part(group: ReplicaGroup) -> str:
    model, parameters = _net()
    sums = GradientSum(parameters, model=model, group=group, max_buffer_bytes=0, overlaps=True)
    images = torch.ones(1, 2, 4, 4)
    sums.begin_last_pass()
    model(images).sum().backward()
    message = ""
    try:
        model(images).sum().backward()
    except BadInputError as error:
        message = str(error)
    sums.finish()
    return message


def test_a_gradient_that_comes_in_two_parts_is_refused(rank_pool: RankPool) -> None:
    for message in rank_pool.run(_second_part, ranks=2):
        assert "--model gives last.bias its gradient in two parts" in message


def test_alone_nothing_is_watched_or_summed() -> None:
    model, parameters = _net()
    sums = GradientSum(parameters, model=model, group=ALONE, max_buffer_bytes=0, overlaps=True)
    sums.begin_last_pass()
    model(torch.ones(1, 2, 4, 4)).sum().backward()
    sums.finish()
    assert (sums.bytes_summed, sums.sums_issued, sums.buckets) == (0, 0, [])
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1, [["last.bias"], ["last.weight"], ["optional.bias"], ["optional.weight"], ["hidden.bias"]]),
        (1700, [["optional.bias", "last.weight", "last.bias"], ["hidden.bias", "optional.weight"]]),
        (10**6, [["conv.weight", "conv.bias", "hidden.weight", "hidden.bias", "optional.weight"]]),
    ],
)
def test_buckets_end_where_parameters_do(most: int, expected: list[list[str]]) -> None:
    _, parameters = _net()
    buckets = cut_into_buckets(parameters.segments, end=len(parameters.gradients), most=most)
    assert [list(bucket.names)[:5] for bucket in buckets][: len(expected)] == expected
    assert [bucket.start for bucket in buckets[:-1]] == [bucket.end for bucket in buckets[1:]]
    assert (buckets[0].end, buckets[-1].start) == (len(parameters.gradients), 0)
    assert all(bucket.end - bucket.start <= most or len(bucket.names) == 1 for bucket in buckets)


def test_on_a_cpu_overlap_pays_from_the_second_bucket_on() -> None:
    cpu = Device(torch_device=torch.device("cpu"), reason="test")
    assert not pays_to_overlap(cpu, DEFAULT_BUFFER_BYTES)
    assert pays_to_overlap(cpu, DEFAULT_BUFFER_BYTES + 4)
    assert pays_to_overlap(Device(torch_device=torch.device("cuda"), reason="test"), 4)
