"""`--head-first-epochs`: the backbone stands still, then trains, in every layout."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.ranks.pool import RankPool
from tests.program.harness import worst_error
from tests.run.rank_runs import train_in_ranks, train_rank, weights

pytestmark = pytest.mark.usefixtures("no_pictures")

# An epoch has 2.25 updates, so that the backbone trains from update 2 on, counted from 0.
HEAD_FIRST: dict[str, Any] = {
    "head_first_epochs": 1,
    "backbone_rate": 0.5,
    "optimizer": "adamw",
    "weight_decay": 0.1,
    "l2_regularization": 0.01,
    "clip_norm": 0.5,
    "lr_schedule": "const",
    "checkpoint_every": 1,
}


def _trained(pool: RankPool, path: Path, *, updates: list[int], **options: Any) -> dict[str, Any]:
    for last in updates:
        train_in_ranks(pool, path, ranks=1, max_updates=last, **{**HEAD_FIRST, **options})
    return weights(path)


def test_the_backbone_stands_still_then_trains(rank_pool: RankPool, tmp_path: Path) -> None:
    one, two, three = (_trained(rank_pool, tmp_path / str(last), updates=[last]) for last in (1, 2, 3))
    for name, value in one.items():
        is_weight = not name.endswith(("running_mean", "running_var", "num_batches_tracked"))
        in_backbone = is_weight and not name.startswith("fc_layer")
        assert np.array_equal(value, two[name]) == in_backbone, name
        assert not is_weight or not np.array_equal(two[name], three[name]), name


def test_a_run_goes_on_with_the_same_bits(rank_pool: RankPool, tmp_path: Path) -> None:
    expected = _trained(rank_pool, tmp_path / "whole", updates=[4])
    found = _trained(rank_pool, tmp_path / "parts", updates=[1, 2, 3, 4])
    assert all(np.array_equal(found[name], value) for name, value in expected.items())
    other = _trained(rank_pool, tmp_path / "at once", updates=[4], head_first_epochs=0)
    assert any(not np.array_equal(other[name], value) for name, value in expected.items())


LAYOUTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "replicas": {"ranks": 2, "micro_batch_size": 4, "dbn_replica_group_size": 2},
    "stages": {"ranks": 2, "replicas": 1, "stages": 2},
}


@pytest.mark.parametrize("first", [1, 2])
def test_layouts_agree_before_and_after_it_begins(rank_pool: RankPool, tmp_path: Path, first: int) -> None:
    # Without Adam, which divides by the size of a gradient: of one near zero only the noise is left.
    options = {**HEAD_FIRST, "optimizer": "sgd"}
    train_in_ranks(rank_pool, tmp_path / "start", ranks=1, max_updates=first, **options)
    found = {}
    for name, layout in LAYOUTS.items():
        shutil.copytree(tmp_path / "start", tmp_path / name)
        given = {**options, "max_updates": first + 1, **layout}
        ranks = given.pop("ranks", 1)
        # Ranks with stages of their own end with different weights, so that `train_in_ranks` would object.
        rank_pool.run(train_rank, str(tmp_path / name), given, ranks=ranks)
        found[name] = weights(tmp_path / name)
    before, whole = weights(tmp_path / "start"), found["whole"]
    assert np.array_equal(before["conv1_conv.weight"], whole["conv1_conv.weight"]) == (first == 1)
    assert worst_error(whole, found["replicas"]) <= 1e-5
    assert worst_error(whole, found["stages"]) <= 1e-5
