"""What recipes ask for beside replicas comes out on two ranks as on one."""

import csv
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from drivetrain.ranks.collective_timeout import CollectiveTimeout
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.store.metrics_file import read_metrics
from tests.program.harness import worst_error
from tests.run.rank_runs import Ending, losses, train_in_ranks, train_next_update, train_rank, weights

TOLERANCE = 1e-5


def _trained(pool: RankPool, path: Path, **options: Any) -> tuple[Path, Path]:
    """The runs of one process and of two replicas; both end alike."""
    alone, both = path / "alone", path / "both"
    endings = [train_in_ranks(pool, run, ranks=ranks, **options) for run, ranks in ((alone, 1), (both, 2))]
    assert endings[0][:3] == endings[1][:3]
    return alone, both


def _next_update(pool: RankPool, path: Path, **options: Any) -> tuple[Path, Path]:
    """The third update by one process and by two replicas, from the same state."""
    layouts = {"one": {"ranks": 1}, "two": {"ranks": 2}}
    alone, both = train_next_update(pool, path, first=2, layouts=layouts, **options)
    return alone, both


def _last(path: Path, event: str) -> dict[str, Any]:
    return [entry for entry in read_metrics(path / "metrics.jsonl") if entry["event"] == event][-1]


@pytest.mark.parametrize(
    ("options", "updates"),
    [
        # 36 samples in batches of 16: the last micro-batch of an epoch is all padding, the one before half.
        ({"remainder": "pad"}, 6),
        ({"remainder": "carry"}, 4),
        ({"mixup": 0.4}, 4),
        ({"data_placement": "stream", "num_workers": 1, "augment": True}, 4),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_two_replicas_train_what_one_process_trains(
    rank_pool: RankPool, tmp_path: Path, options: dict[str, Any], updates: int
) -> None:
    alone, both = _next_update(rank_pool, tmp_path, **options)
    assert abs(losses(alone)[2] - losses(both)[2]) <= TOLERANCE
    assert worst_error(weights(alone), weights(both)) <= TOLERANCE
    expected, found = (_last(run, "validation") for run in (alone, both))
    assert found["validation_samples"] == 21
    assert found["loss"] == pytest.approx(expected["loss"], abs=TOLERANCE)
    assert found["accuracy"] == expected["accuracy"]
    # The two updates before it are the same on both sides, so that only this one can differ.
    one, two = (_last(run, "train") for run in (alone, both))
    assert (two["samples"], two["accuracy"]) == (one["samples"], one["accuracy"])
    assert two["loss"] == pytest.approx(one["loss"], abs=TOLERANCE)
    train_in_ranks(rank_pool, both, ranks=2, lr_schedule="const", **options)
    assert len(losses(both)) == updates


@pytest.mark.parametrize(
    "options", [{"remainder": "pad"}, {"remainder": "carry"}, {"mixup": 0.4}, {"augment": True}]
)
def test_negative_control_each_of_these_options_changes_the_training(
    rank_pool: RankPool, tmp_path: Path, options: dict[str, Any]
) -> None:
    plain, other = tmp_path / "plain", tmp_path / "other"
    train_in_ranks(rank_pool, plain, ranks=2)
    train_in_ranks(rank_pool, other, ranks=2, **options)
    shared = min(len(losses(plain)), len(losses(other)))
    assert np.abs(losses(plain)[:shared] - losses(other)[:shared]).max() > 100 * TOLERANCE


def test_streamed_samples_are_the_resident_ones_bit_for_bit(rank_pool: RankPool, tmp_path: Path) -> None:
    placements = {"resident": {}, "stream": {"num_workers": 1}}
    found = {
        place: train_in_ranks(
            rank_pool, tmp_path / place, ranks=2, remainder="carry", data_placement=place, **options
        )
        for place, options in placements.items()
    }
    assert found["stream"] == found["resident"]
    assert losses(tmp_path / "stream").tobytes() == losses(tmp_path / "resident").tobytes()


def test_the_averaged_weights_are_those_of_one_process(rank_pool: RankPool, tmp_path: Path) -> None:
    alone, both = _next_update(rank_pool, tmp_path, ema=0.5)
    averaged = weights(both, "averaged")
    assert worst_error(weights(alone, "averaged"), averaged) <= TOLERANCE
    assert worst_error({name: weights(both)[name] for name in averaged}, averaged) > 100 * TOLERANCE
    assert _last(both, "validation")["loss"] == pytest.approx(
        _last(alone, "validation")["loss"], abs=TOLERANCE
    )


@pytest.mark.parametrize(
    ("options", "updates", "said"),
    [
        ({"stop_at": "accuracy=0"}, 2, "--stop-at"),
        # Steps that are too small for float32 improve nothing.
        ({"patience": 2, "learning_rate": 1e-30, "bn_momentum": 0.999999999}, 6, "--patience"),
    ],
)
def test_a_training_that_ends_early_ends_at_the_same_update_on_all_ranks(
    rank_pool: RankPool, tmp_path: Path, options: dict[str, Any], updates: int, said: str
) -> None:
    alone, both = _trained(rank_pool, tmp_path, num_epochs=20, **options)
    for run in (alone, both):
        summary = _last(run, "summary")
        assert summary["update"] == updates
        assert summary["ended_by"].startswith(said)


def test_a_training_without_time_left_stops_all_ranks_and_goes_on_later(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    long = {"num_epochs": 100000, "lr_schedule": "const", "evaluate_every": 10**6}
    status, updates, exit_status, _ = train_in_ranks(
        rank_pool, tmp_path / "run", ranks=2, max_time="0.3", **long
    )
    assert (status, exit_status) == ("stopped", 75)
    assert 0 < updates < 200000
    length = {
        "lr_schedule": "const",
        "max_updates": updates + 3,
        "num_epochs": 100000,
        "evaluate_every": 10**6,
    }
    continued = train_in_ranks(rank_pool, tmp_path / "run", ranks=2, **length)
    straight = train_in_ranks(rank_pool, tmp_path / "straight", ranks=2, **length)
    assert continued == straight
    assert continued[:2] == ("finished", updates + 3)


def _train_with_long_updates(group: ReplicaGroup, path: str, options: dict[str, Any]) -> Ending:
    lasting = mock.PropertyMock(return_value=1e6)
    with mock.patch.object(CollectiveTimeout, "longest_update_s", lasting):
        return train_rank(group, path, options)


def test_ranks_stop_before_a_first_validation_for_which_there_is_no_time(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    """A rank trains on 8 samples an update and measures 10: together 2.25 million seconds at most."""
    options = {"num_epochs": 15, "evaluate_every": 20, "lr_schedule": "const"}
    for max_time, expected in ((2_200_000, ("stopped", 75)), (2_500_000, ("finished", 0))):
        path, given = str(tmp_path / str(max_time)), options | {"max_time": max_time}
        endings = rank_pool.run(_train_with_long_updates, path, given, ranks=2)
        assert [(status, exit_status) for status, _, exit_status, _ in endings] == [expected] * 2
        assert all((10 < updates < 20) == (expected[0] == "stopped") for _, updates, _, _ in endings)


def test_predictions_after_the_training_are_those_of_one_process(rank_pool: RankPool, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8)).astype(np.uint8)
    files = [tmp_path / f"{index}.png" for index in range(3)]
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image).save(file)
    runs = _trained(rank_pool, tmp_path, max_updates=1, predict_after=[str(file) for file in files])
    expected, found = (_probabilities(run / "predictions" / "predictions.csv") for run in runs)
    assert np.abs(expected - found).max() <= TOLERANCE
    assert np.abs(found[0] - found[1]).max() > 100 * TOLERANCE


def _probabilities(path: Path) -> np.ndarray[Any, Any]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return np.array([[float(row[f"p_{name}"]) for name in range(10)] for row in rows])
