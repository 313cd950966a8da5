"""Which device a rank takes, on machines that are made up."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.rank_device import check_enough_devices, choose_rank_device
from drivetrain.ranks.replica_group import ReplicaGroup

Machine = Callable[..., list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told(ReplicaGroup):
    """A rank whose others are made up: all that it gathers is what they said."""

    others: tuple[Any, ...] = ()

    def gather(self, item: Any) -> list[Any]:
        return [*self.others[: self.rank], item, *self.others[self.rank :]]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Pretends that this process sees so many CUDA devices; tells which one was set."""

    def pretend(visible: int, *, first: int = 0) -> list[int]:
        chosen: list[int] = []
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: visible)
        monkeypatch.setattr(torch.accelerator, "set_device_index", chosen.append)
        hardware = property(lambda device: f"gpu-{first + device.torch_device.index}")
        monkeypatch.setattr(Device, "hardware", hardware)
        return chosen

    return pretend


def _rank(rank: int, others: tuple[str, ...], *, local_size: int | None = None) -> ReplicaGroup:
    size = len(others) + 1
    local = size if local_size is None else local_size
    return _Told(rank=rank, size=size, local_rank=rank % local, local_size=local, others=others)


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_ranks_that_see_all_devices_take_one_each(machine: Machine, name: str) -> None:
    chosen = machine(2)
    device = choose_rank_device(name, _rank(1, ("gpu-0",)))
    assert device.torch_device == torch.device("cuda", 1)
    assert chosen[-1:] == [1]
    assert device.reason == "rank 1 of 2"


def test_a_rank_that_is_shown_one_device_takes_that_one(machine: Machine) -> None:
    chosen = machine(1, first=5)
    device = choose_rank_device("cuda", _rank(3, ("gpu-2", "gpu-3", "gpu-4")))
    assert device.torch_device == torch.device("cuda", 0)
    assert chosen[-1:] == [0]


def test_ranks_that_are_shown_the_same_device_are_refused(machine: Machine) -> None:
    machine(1)
    with pytest.raises(BadInputError, match="Ranks 0, 2 use the same cuda device"):
        choose_rank_device("cuda", _rank(2, ("gpu-0", "gpu-7")))


def test_several_devices_that_are_too_few_are_refused(machine: Machine) -> None:
    machine(2)
    with pytest.raises(
        BadInputError, match=r"3 ranks on this host need 3 cuda .* start 2 ranks on each host"
    ):
        choose_rank_device("cuda", _rank(0, ("gpu-1", "gpu-2")))


def test_one_device_by_number_is_for_one_rank_on_a_host(machine: Machine) -> None:
    machine(2)
    with pytest.raises(
        BadInputError, match=r"--device cuda:1 is one device, .* 2 ranks .* --device cuda works"
    ):
        choose_rank_device("cuda:1", _rank(0, ("gpu-1",)))
    device = choose_rank_device("cuda:1", _rank(0, ("gpu-0",), local_size=1))
    assert device.torch_device == torch.device("cuda", 1)


def test_the_launcher_refuses_before_it_starts(machine: Machine) -> None:
    machine(4)
    check_enough_devices("auto", replicas=4, per_replica=1)
    check_enough_devices("cuda", replicas=2, per_replica=2)
    check_enough_devices("cuda:3", replicas=1, per_replica=1)
    check_enough_devices("cpu", replicas=99, per_replica=2)
    for replicas, per_replica, words in [
        (5, 1, "--replicas 5 needs 5 cuda devices, but this machine has 4; --replicas 4 fits"),
        (3, 2, "--replicas 3 of 2 devices each needs 6 cuda devices, .* --replicas 2 fits"),
        (1, 8, "--replicas 1 of 8 devices each needs 8 cuda devices, .* --stages 4 fits"),
    ]:
        with pytest.raises(BadInputError, match=words):
            check_enough_devices("cuda", replicas=replicas, per_replica=per_replica)
    with pytest.raises(BadInputError, match="--device cuda:3 is one device, but each of 2 ranks"):
        check_enough_devices("cuda:3", replicas=2, per_replica=1)


def _choose_cpu(group: ReplicaGroup) -> str:
    return str(choose_rank_device("cpu", group).torch_device)


def test_any_number_of_ranks_share_a_cpu(rank_pool: RankPool) -> None:
    assert rank_pool.run(_choose_cpu) == ["cpu"] * 4
