"""A stage's process is killed: all end, the launcher names the stage and its action, and the run goes on."""

from pathlib import Path
from typing import Any

from drivetrain.ranks.activity_note import Doing
from drivetrain.ranks.launch import launch
from drivetrain.ranks.pool import RankPool
from tests.ranks.rank_functions import lives, pids_in
from tests.run.killed_ranks import Death, train_and_die
from tests.run.rank_runs import losses, train_rank, weights

OPTIONS: dict[str, Any] = {
    "stages": 2,
    "replicas": 1,
    "micro_batch_size": 4,
    "max_updates": 4,
    "checkpoint_every": 1,
    "num_threads": 1,
}
ZERO_BUBBLE = {**OPTIONS, "pipeline_schedule": "zero-bubble", "evaluate_every": 3}

# At every start the next of these comes, and each leaves the run a little further.
DEATHS = [
    (Death(1, Doing.FORWARD, 1, 3), "during the forward pass of micro-batch 3 of update 2"),
    (Death(0, Doing.INPUT, 1, 2), "during the backward pass (inputs) of micro-batch 2 of update 2"),
    (Death(1, Doing.WEIGHT, 1, 1), "during the backward pass (weights) of micro-batch 1 of update 2"),
    (Death(0, Doing.GRADIENT_SUM, 2), "during the gradient all-reduce of update 3"),
    (Death(1, Doing.OPTIMISER, 2), "during the optimiser step of update 3"),
    (Death(1, Doing.VALIDATION, 3), "during the validation after update 3"),
    (Death(0, Doing.CHECKPOINT, 3), "during the checkpoint after update 3"),
]


def _check_all_ended(folder: Path, *, ranks: int) -> None:
    """By the time that the launcher speaks."""
    assert len(pids_in(folder)) == ranks
    assert not any(map(lives, pids_in(folder)))
    (folder / "killed").unlink()


def test_killed_at_any_action_all_end_and_the_run_goes_on_with_the_same_bits(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    path, sentences = tmp_path / "run", []

    def hear(sentence: str) -> None:
        _check_all_ended(tmp_path, ranks=2)
        sentences.append(sentence)

    result = launch(
        train_and_die,
        args=(path, ZERO_BUBBLE, [death for death, _ in DEATHS]),
        ranks=2,
        threads_per_rank=1,
        max_restarts=len(DEATHS),
        say=hear,
    )
    assert result.exit_status == 0, (result.failed, sentences)
    for (death, words), sentence in zip(DEATHS, sentences, strict=True):
        assert sentence.startswith(f"rank {death.rank} on ")
        assert f" (stage {death.rank} of replica 0) was killed by SIGKILL {words}; " in sentence
    undisturbed = tmp_path / "undisturbed"
    rank_pool.run(train_rank, str(undisturbed), ZERO_BUBBLE, ranks=2)
    assert losses(path).tobytes() == losses(undisturbed).tobytes()
    for name in ("model", "optimizer"):
        found, expected = weights(path, name), weights(undisturbed, name)
        assert found.keys() == expected.keys()
        assert all(found[key].tobytes() == expected[key].tobytes() for key in expected)


def test_killed_in_a_backward_pass_with_replicas_beside_it(tmp_path: Path) -> None:
    deaths = [Death(2, Doing.BACKWARD, 2, 1)]
    options = {**OPTIONS, "replicas": 2}
    result = launch(train_and_die, args=(tmp_path / "run", options, deaths), ranks=4, threads_per_rank=1)
    assert result.failed is not None
    _check_all_ended(tmp_path, ranks=4)
    assert result.exit_status == 1
    words = "was killed by SIGKILL during the backward pass of micro-batch 1 of update 3; "
    assert f" (stage 0 of replica 1) {words}" in result.failed.sentence
    newest = max(int(entry.name) for entry in (tmp_path / "run" / "checkpoints").glob("[0-9]*"))
    assert newest == 2
