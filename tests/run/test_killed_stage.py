"""A stage's process is killed: all end, the launcher names the stage and its action, and a rerun goes on."""

import time
from pathlib import Path
from typing import Any

from drivetrain.cluster.activity_note import Doing
from drivetrain.cluster.launch import LaunchResult, launch
from drivetrain.cluster.pool import RankPool
from tests.cluster.ranks import lives, pids_in
from tests.run.killed_ranks import Moment, train_and_die
from tests.run.rank_runs import train_rank

SOON_S = 10.0
UPDATE = 2
OPTIONS: dict[str, Any] = {
    "stages": 2,
    "replicas": 1,
    "micro_batch_size": 4,
    "max_updates": 4,
    "checkpoint_every": 1,
    "num_threads": 1,
}


def _kill(folder: Path, *, ranks: int, dying: int, at: Moment, **options: Any) -> LaunchResult:
    path = folder / "run"
    result = launch(
        train_and_die,
        args=(path, {**OPTIONS, **options}, dying, at, UPDATE),
        ranks=ranks,
        threads_per_rank=1,
        grace_s=5.0,
    )
    assert time.time() - float((folder / "killed").read_text()) < SOON_S
    assert not any(map(lives, pids_in(folder)))
    assert len(pids_in(folder)) == ranks
    assert result.exit_status == 1
    return result


def _sentence(result: LaunchResult) -> str:
    assert result.failed is not None
    return result.failed.sentence


def test_killed_in_a_forward_pass_and_continued_with_the_same_bits(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    undisturbed = rank_pool.run(train_rank, str(tmp_path / "undisturbed"), OPTIONS, ranks=2)[0]
    sentence = _sentence(_kill(tmp_path, ranks=2, dying=1, at=(Doing.FORWARD, 3)))
    assert sentence.startswith("rank 1 on ")
    assert " (stage 1 of replica 0) was ended by SIGKILL during the forward pass of " in sentence
    assert f"micro-batch 3 of update {UPDATE}; " in sentence
    newest = max(int(entry.name) for entry in (tmp_path / "run" / "checkpoints").glob("[0-9]*"))
    assert newest == UPDATE
    rerun = rank_pool.run(train_rank, str(tmp_path / "run"), OPTIONS, ranks=2)[0]
    assert rerun == undisturbed


def test_killed_in_a_backward_pass_with_replicas_beside_it(tmp_path: Path) -> None:
    sentence = _sentence(_kill(tmp_path, ranks=4, dying=2, at=(Doing.BACKWARD, 1), replicas=2))
    assert " (stage 0 of replica 1) was ended by SIGKILL during the backward pass of " in sentence
    assert f"micro-batch 1 of update {UPDATE}; " in sentence
