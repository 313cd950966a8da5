"""Memory runs out on one rank: all go on with half the micro-batch, with the bits of a continued run."""

import copy
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from torch import nn

from drivetrain.core.errors import RunFailedError
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.load import read_recipe_yaml
from drivetrain.run.loop.forced_shortage import FORCED_SHORTAGE
from drivetrain.run.shortage.recovery import Recovery
from drivetrain.store.metrics_file import SHORTAGE_EVENT, read_metrics
from tests.run.rank_runs import losses
from tests.run.shortage.short_runs import bits, only_until, train_short
from tests.run.small_training import TrainSmall

REPLICAS: dict[str, Any] = {"ranks": 4, "replicas": 4, "micro_batch_size": 8}
STAGES: dict[str, Any] = {"ranks": 4, "replicas": 2, "stages": 2, "micro_batch_size": 8}
ALONE: dict[str, Any] = {"ranks": 1, "replicas": 1, "micro_batch_size": 8, "fit": True}
# More replicas normalise together, so that the set of samples stays the same; one process has no others.
SMALL = {"replicas": {"dbn_replica_group_size": 2}, "stages": {"dbn_replica_group_size": 2}, "alone": {}}
LAYOUTS: dict[str, dict[str, Any]] = {"replicas": REPLICAS, "stages": STAGES, "alone": ALONE}


def _events(path: Path) -> list[dict[str, Any]]:
    return [event for event in read_metrics(path / "metrics.jsonl") if event["event"] == SHORTAGE_EVENT]


@pytest.mark.parametrize(
    ("name", "shortage"),
    [
        ("replicas", "rank=2 update=3 part=forward above=4"),
        ("stages", "rank=3 update=3 part=backward above=4"),
        ("alone", "rank=0 update=3 part=backward above=4"),
    ],
)
def test_later_updates_have_the_bits_of_a_run_continued_with_the_small_micro_batch(
    name: str, shortage: str, rank_pool: RankPool, tmp_path: Path
) -> None:
    layout = LAYOUTS[name]
    short = tmp_path / "short"
    train_short(rank_pool, short, shortage, **layout)
    (event,) = _events(short)
    assert (event["update"], event["finished_updates"], event["part"]) == (3, 3, "update")
    assert event["micro_batch_size"] == 4
    assert read_recipe_yaml(short / "recipe.yaml")["micro_batch_size"] == 4

    continued = only_until(short, 3, copy=tmp_path / "continued")
    train_short(rank_pool, continued, **{**layout, **SMALL[name], "micro_batch_size": 4})
    assert bits(short) == bits(continued)
    assert losses(short).tobytes() == losses(continued).tobytes()

    # The same command as before takes the small micro-batch too.
    again = only_until(short, 3, copy=tmp_path / "again")
    train_short(rank_pool, again, **layout)
    assert bits(again) == bits(short)
    assert json.loads((again / "plan.json").read_text())["batch"]["micro"] == 4

    undisturbed = tmp_path / "undisturbed"
    train_short(rank_pool, undisturbed, **layout)
    assert _events(undisturbed) == []
    assert losses(undisturbed)[:3].tobytes() == losses(short)[:3].tobytes()
    assert bits(undisturbed) != bits(short)


def test_an_interrupted_optimiser_step_goes_back_to_the_last_checkpoint(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    short = tmp_path / "short"
    options = {**REPLICAS, "checkpoint_every": 3}
    train_short(rank_pool, short, "rank=1 update=4 part=optimiser above=4", **options)
    (event,) = _events(short)
    assert (event["update"], event["finished_updates"], event["part"]) == (3, 4, "optimiser step")
    continued = only_until(short, 3, copy=tmp_path / "continued")
    train_short(rank_pool, continued, **options)
    assert bits(short) == bits(continued)


def test_a_validation_takes_smaller_batches_and_the_training_stays_the_same(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    options = {**REPLICAS, "evaluate_every": 3, "validation_micro_batch_size": 4}
    short, undisturbed = tmp_path / "short", tmp_path / "undisturbed"
    train_short(rank_pool, short, "rank=3 update=3 part=validation above=2", **options)
    train_short(rank_pool, undisturbed, **options)
    (event,) = _events(short)
    assert (event["update"], event["validation_micro_batch_size"], event["micro_batch_size"]) == (3, 2, 8)
    assert bits(short) == bits(undisturbed)
    validated = [
        entry["update"] for entry in read_metrics(short / "metrics.jsonl") if entry["event"] == "validation"
    ]
    assert validated == [3, 6]


def test_without_fit_one_process_with_batch_norm_stops_and_fit_continues_it(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    short, shortage = tmp_path / "short", "rank=0 update=3 part=forward above=4"
    without = {**ALONE, "fit": False}
    with pytest.raises(RunFailedError) as stop:
        train_short(rank_pool, short, shortage, **without)
    assert str(stop.value) == (
        "the memory did not suffice in update 4 with --micro-batch-size 8, and with --micro-batch-size 4 "
        "--global-batch-size 32 batch norm would normalise over 4 samples instead of 8, which changes the "
        "result; add --fit to the same command to allow it and continue."
    )
    assert (short / "checkpoints" / "3").is_dir()
    assert read_recipe_yaml(short / "recipe.yaml")["micro_batch_size"] == 8
    train_short(rank_pool, short, shortage, **ALONE)
    assert [event["update"] for event in _events(short)] == [3]


def test_before_the_first_update_a_model_given_in_python_starts_afresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_small: TrainSmall
) -> None:
    options: dict[str, Any] = {"model": nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), "num_epochs": 1}
    before = copy.deepcopy(options["model"].state_dict())
    monkeypatch.setenv(FORCED_SHORTAGE, "rank=0 update=0 part=optimiser above=4")
    short = train_small(tmp_path / "short", **options)
    (event,) = _events(tmp_path / "short")
    assert (event["update"], event["micro_batch_size"], event["accumulation"]) == (0, 4, 4)
    monkeypatch.delenv(FORCED_SHORTAGE)
    options["model"].load_state_dict(before)
    expected = train_small(
        tmp_path / "expected", **{**options, "micro_batch_size": 4, "gradient_accumulation_count": 4}
    )
    assert short.updates == expected.updates
    assert bits(tmp_path / "short") == bits(tmp_path / "expected")


def test_a_run_whose_loss_is_no_number_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_small: TrainSmall
) -> None:
    monkeypatch.setenv(FORCED_SHORTAGE, "rank=0 update=3 part=forward above=4")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with pytest.raises(RunFailedError, match=r"the loss became (nan|inf) at update [123]; no checkpoint"):
        train_small(tmp_path / "run", model=model, learning_rate=1e38, max_updates=6, log_every=6)
    assert list((tmp_path / "run").glob("checkpoints/*")) == []


@pytest.mark.parametrize(
    ("is_cpu", "is_given", "meets"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_on_accelerators_a_bad_loss_may_come_from_what_was_broken_off(
    is_cpu: bool, is_given: bool, meets: bool
) -> None:
    program = Mock(group=ReplicaGroup(), device=Mock(is_cpu=is_cpu))
    recovery = Recovery(request=Mock(), assembly=Mock(program=program), reporter=Mock())
    recovery.notice = Mock(is_given=is_given)
    loop = Mock(context=Mock(program=program, is_alone=False), finished=3)
    report = recovery._report(RunFailedError("the loss became nan at update 3"), loop)
    assert (report is not None) == meets
    assert report is None or (report.finished, report.ran_out, report.is_whole) == (3, False, False)


def test_a_micro_batch_of_one_that_does_not_fit_says_what_would(rank_pool: RankPool, tmp_path: Path) -> None:
    options = {**ALONE, "micro_batch_size": 1}
    with pytest.raises(RunFailedError, match="--recomputation, --stages 2 on more devices") as stop:
        train_short(rank_pool, tmp_path / "short", "rank=0 update=0 part=forward above=0", **options)
    assert "in update 1 with --micro-batch-size 1, and no smaller batch is possible" in str(stop.value)
