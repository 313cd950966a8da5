"""The state of a program whose stages lie on several ranks: what travels, and what arrives."""

from typing import Any

import pytest
import torch

from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE
from drivetrain.state.tensor_exchange import gather_tensors, hand_out_tensors
from tests.pipeline.rank_programs import Job, cut_options
from tests.run.state_over_ranks import model_at_the_end, traffic_of_checkpoint, traffic_of_start

# Names, shapes and types of tensors, by pickle.
FEW_BYTES = 40_000


def _job(**options: Any) -> Job:
    cut = cut_options("resnet18", device_of=(0, 1), optimizer="adam", **options)
    return Job(kind="resnet18", options=cut, dtype=torch.float32, updates=2)


def test_a_checkpoint_moves_each_byte_of_the_state_once_to_the_rank_that_writes(rank_pool: RankPool) -> None:
    first, second = rank_pool.run(traffic_of_checkpoint, _job(), ranks=2)
    assert first["tensors"] == 0
    assert second["tensors"] == second["held"] > FEW_BYTES
    assert first["pickled"] + second["pickled"] < FEW_BYTES
    assert (first["whole"], second["whole"]) == (first["held"] + second["held"], 0)


def test_a_start_sends_each_rank_its_part_and_frees_the_others(rank_pool: RankPool) -> None:
    first, second = rank_pool.run(traffic_of_start, _job(), ranks=2)
    assert (first["tensors"], second["tensors"]) == (second["held"], 0)
    assert first["pickled"] + second["pickled"] < FEW_BYTES
    assert first["foreign"] > 0
    assert second["foreign"] > 0
    assert first["foreign_bytes"] == second["foreign_bytes"] == 0


@pytest.mark.parametrize("options", [{}, {"ema": 0.9}], ids=["plain", "averaged"])
def test_the_first_rank_ends_with_the_whole_model(rank_pool: RankPool, options: dict[str, Any]) -> None:
    (expected, found), _ = rank_pool.run(model_at_the_end, _job(**options), ranks=2)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes(), name


def test_a_copy_does_not_follow_the_training_and_takes_the_room_of_an_earlier_one() -> None:
    own = {"w": torch.zeros(2)}
    earlier = gather_tensors(own, devices=ALONE, room={})
    own["w"].add_(1)
    assert earlier["w"].tolist() == [0.0, 0.0]
    place = earlier["w"].data_ptr()
    copied = gather_tensors(own, devices=ALONE, room=earlier)
    assert copied["w"].tolist() == [1.0, 1.0]
    assert copied["w"].data_ptr() == place != own["w"].data_ptr()


def _exchanged(group: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors of many kinds, some with a name that both ranks have, to the first rank and back."""
    rank = group.rank
    own = {
        f"flat {rank}": torch.arange(24.0)[4:].view(4, 5) + rank,
        f"images {rank}": torch.arange(48.0).view(2, 2, 4, 3).permute(0, 3, 1, 2) + rank,
        f"odd {rank}": torch.arange(48.0).view(2, 4, 3, 2).transpose(1, 3) + rank,
        f"count {rank}": torch.tensor(7 + rank),
        f"mask {rank}": torch.tensor([True, False, bool(rank)]),
        f"half {rank}": torch.tensor([0.5, rank], dtype=torch.bfloat16),
        f"none {rank}": torch.empty(0, 2),
        "of both": torch.tensor([rank]),
    }
    whole = gather_tensors(own, devices=group, room={})
    for value in own.values():
        value.zero_()
    hand_out_tensors(own, whole, devices=group)
    return _plain(whole), _plain(own)


def _plain(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {name: (str(value.dtype), value.tolist()) for name, value in tensors.items()}


def test_tensors_of_every_kind_travel_there_and_back(rank_pool: RankPool) -> None:
    (whole, first), (nothing, second) = rank_pool.run(_exchanged, ranks=2)
    assert nothing == {}
    assert whole == {**second, **first}
    assert len(whole) == 15
    assert whole["of both"] == second["of both"] == ("torch.int64", [0])
    assert second["images 1"][1][0][0][0] == [1.0, 4.0, 7.0, 10.0]
