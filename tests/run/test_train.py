"""What a run does around its updates."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import drivetrain
from drivetrain.assembly.training_parts import Assembly, assemble
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.program.move_weights import WeightMover
from drivetrain.store.lock import hold_lock
from drivetrain.store.metrics_file import read_metrics
from drivetrain.tasks.classification import ClassificationTask
from tests.run.small_training import (
    TrainSmall,
    final_files,
    signal_after,
    train_small_run,
    train_to_share,
)

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> drivetrain.RunResult:
    return train_to_share(train_small_run, tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture
def trained(trained_once: drivetrain.RunResult, tmp_path: Path) -> drivetrain.RunResult:
    """The small recipe's run, finished in `run` of the test's folder."""
    shutil.copytree(trained_once.directory, tmp_path / "run")
    return trained_once


@pytest.fixture(scope="module")
def logged_each_update(tmp_path_factory: pytest.TempPathFactory) -> drivetrain.RunResult:
    return train_to_share(train_small_run, tmp_path_factory.mktemp("logged") / "run", log_every=1)


@pytest.mark.pictures
@pytest.mark.slow
def test_a_run_leaves_what_the_other_commands_need(tmp_path: Path, train_small: TrainSmall) -> None:
    result = train_small(tmp_path / "run", tensorboard=True)
    there = {path.name for path in (tmp_path / "run").iterdir()}
    assert there >= {
        "recipe.yaml",
        "plan.json",
        "data.json",
        "metrics.jsonl",
        "updates.npz",
        "checkpoints",
        "curves.png",
        "predictions",
        "tensorboard",
        "README.md",
        "rank-0.log",
    }
    assert result.status == "finished"
    assert result.exit_status == 0
    assert any(path.name.startswith("events") for path in (tmp_path / "run" / "tensorboard").iterdir())
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_events_of_a_run(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", log_every=4, evaluate_every=9)
    entries = read_metrics(tmp_path / "run" / "metrics.jsonl")
    updates = {
        kind: [entry["update"] for entry in entries if entry["event"] == kind]
        for kind in ("train", "validation", "summary")
    }
    assert updates == {"train": [4, 8, 12, 16, 18], "validation": [9, 18], "summary": [18]}
    keys = {"time", "elapsed_seconds", "epoch", "update", "samples", "loss", "accuracy", "learning_rate"}
    assert keys <= set(entries[0])
    assert entries[0]["time"].endswith("Z")
    assert "compile_seconds" in entries[0]
    assert "compile_seconds" not in entries[1]
    assert entries[0]["epoch"] == 1
    assert entries[-1]["time_to_train_seconds"] > 0


def test_logged_means_cover_the_log_period(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", log_every=4)
    losses = np.load(tmp_path / "run" / "updates.npz")["loss"]
    logged = [e["loss"] for e in read_metrics(tmp_path / "run" / "metrics.jsonl") if e["event"] == "train"]
    expected = [losses[first : first + 4].mean() for first in (0, 4, 8, 12, 16)]
    assert logged == pytest.approx(expected, rel=1e-6)


def test_validation_counts_every_sample_once(tmp_path: Path, train_small: TrainSmall) -> None:
    results = [
        train_small(tmp_path / str(size), validation_micro_batch_size=size).metrics["validation"]
        for size in (7, 40)
    ]
    assert results[0]["validation_samples"] == 40
    assert results[0]["accuracy"] == results[1]["accuracy"]
    assert results[0]["loss"] == pytest.approx(results[1]["loss"], rel=1e-5)


def test_a_finished_run_says_so_and_a_longer_one_continues(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", lr_schedule="const")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    again = train_small(tmp_path / "run", lr_schedule="const")
    assert (again.status, again.exit_status) == ("finished", 0)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    longer = train_small(tmp_path / "run", lr_schedule="const", num_epochs=4)
    assert longer.updates == 24
    updates = [e["update"] for e in read_metrics(tmp_path / "run" / "metrics.jsonl") if e["event"] == "train"]
    assert updates == [6, 12, 18, 24]


def test_a_longer_training_equals_one_that_was_long_from_the_start(
    tmp_path: Path, train_small: TrainSmall
) -> None:
    constant = {"lr_schedule": "const"}
    train_small(tmp_path / "grown", **constant)
    grown = train_small(tmp_path / "grown", num_epochs=4, **constant)
    straight = train_small(tmp_path / "straight", num_epochs=4, **constant)
    for name, value in grown.model.state_dict().items():
        assert torch.equal(value, straight.model.state_dict()[name]), name


@pytest.mark.parametrize(
    ("option", "value"),
    [("seed", 2), ("learning_rate", 0.2), ("micro_batch_size", 4), ("model", "cifar_resnet20")],
)
def test_what_must_not_change_is_named(
    tmp_path: Path, train_small: TrainSmall, option: str, value: object
) -> None:
    train_small(tmp_path / "run", max_updates=2, gradient_accumulation_count=None, global_batch_size=16)
    with pytest.raises(BadInputError, match="--" + option.replace("_", "-")):
        train_small(
            tmp_path / "run", gradient_accumulation_count=None, global_batch_size=16, **{option: value}
        )


def test_accumulation_may_change_while_the_global_batch_stays(
    tmp_path: Path, train_small: TrainSmall
) -> None:
    with signal_after(3):
        train_small(tmp_path / "run")
    continued = train_small(tmp_path / "run", gradient_accumulation_count=None, global_batch_size=16)
    assert continued.updates == 18
    with pytest.raises(BadInputError, match="--global-batch-size is 32"):
        train_small(tmp_path / "run", gradient_accumulation_count=4)


@pytest.mark.usefixtures("trained")
def test_overwrite_starts_afresh(tmp_path: Path, train_small: TrainSmall) -> None:
    again = train_small(tmp_path / "run", seed=2, overwrite=True, max_updates=3)
    assert again.updates == 3
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["3"]


def test_a_second_process_is_refused(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", max_updates=1)
    with hold_lock(tmp_path / "run"), pytest.raises(BadInputError, match="in use by another process"):
        train_small(tmp_path / "run")


def test_a_directory_of_something_else_is_not_touched(tmp_path: Path, train_small: TrainSmall) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("important")
    for overwrite in (False, True):
        with pytest.raises(BadInputError, match=r"holds thesis\.txt and no run"):
            train_small(tmp_path / "mine", overwrite=overwrite)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_file_is_no_output_directory(tmp_path: Path, train_small: TrainSmall) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match=r"--output-dir .* is a file"):
        train_small(tmp_path / "file")
    with pytest.raises(BadInputError, match=r"--output-dir .* is not a directory"):
        train_small(tmp_path / "file" / "below")


def test_bad_input_writes_nothing(tmp_path: Path, train_small: TrainSmall) -> None:
    for options in (
        {"micro_batch_size": 5000},
        {"model": "mnist_cnn"},
        {"replicas": 3, "dbn_replica_group_size": 2},
        {"dataset": "mnist", "data_dir": str(tmp_path / "nowhere")},
    ):
        with pytest.raises(BadInputError):
            train_small(tmp_path / "run", **options)
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_false_writes_none(tmp_path: Path, train_small: TrainSmall) -> None:
    result = train_small(tmp_path / "run", checkpoints=False)
    assert result.status == "finished"
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert train_small(tmp_path / "run", checkpoints=False).status == "finished"


def test_clean_dir_removes_the_checkpoints_at_the_end(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", clean_dir=True)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_training_false_validates_the_newest_checkpoint(
    tmp_path: Path, train_small: TrainSmall, trained: drivetrain.RunResult
) -> None:
    validated = train_small(tmp_path / "run", training=False)
    assert validated.status == "validated"
    assert validated.metrics["accuracy"] == trained.metrics["validation"]["accuracy"]


def test_overwrite_removes_only_what_a_run_writes(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", max_updates=1)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    train_small(tmp_path / "run", max_updates=1, overwrite=True, seed=4)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_a_users_own_recipe_is_no_run(tmp_path: Path, train_small: TrainSmall) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "recipe.yaml").write_text("model: toy_model")
    (tmp_path / "mine" / "thesis.txt").write_text("important")
    with pytest.raises(BadInputError, match="no run"):
        train_small(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize(
    "left", [[".lock"], [".lock", "rank-0.log"], [".lock", "identity.json", "plan.json"]]
)
def test_a_kill_before_the_recipe_is_written_leaves_a_usable_directory(
    tmp_path: Path, train_small: TrainSmall, left: list[str]
) -> None:
    (tmp_path / "run").mkdir()
    for name in left:
        (tmp_path / "run" / name).write_text("")
    assert train_small(tmp_path / "run", max_updates=1).status == "finished"


def test_a_run_that_another_process_finished_meanwhile_is_kept(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both prepared while the directory was empty; the second must not clear what the first wrote."""
    from drivetrain.run import train as module

    def assemble_late(*args: Any, **options: Any) -> Assembly:
        monkeypatch.undo()
        train_small(tmp_path / "run", max_updates=3)
        return assemble(*args, **options)

    monkeypatch.setattr(module, "assemble", assemble_late)
    late = train_small(tmp_path / "run", max_updates=3)
    assert late.status == "finished"
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 3


def test_corrupt_newer_checkpoints_do_not_push_out_the_sound_one(
    tmp_path: Path, train_small: TrainSmall
) -> None:
    with signal_after(13):
        train_small(tmp_path / "run", checkpoint_every=4, validation=False, limit_validation_samples=None)
    names = sorted(int(path.name) for path in (tmp_path / "run" / "checkpoints").iterdir())
    for update in names[1:]:
        (tmp_path / "run" / "checkpoints" / str(update) / "model.safetensors").write_bytes(b"")
    with signal_after(names[0] + 1):
        train_small(tmp_path / "run", checkpoint_every=4, validation=False, limit_validation_samples=None)
    (row,) = drivetrain.evaluate(tmp_path / "run")
    assert row["update"] == names[0] + 2


def test_a_lost_history_does_not_stop_a_sound_run(tmp_path: Path, train_small: TrainSmall) -> None:
    with signal_after(8):
        train_small(tmp_path / "run")
    (tmp_path / "run" / "updates.npz").unlink()
    assert train_small(tmp_path / "run").status == "finished"


@pytest.mark.pictures
@pytest.mark.slow
def test_a_kill_before_the_summary_is_made_up_for(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text("".join(line + "\n" for line in metrics.read_text().splitlines()[:-1]))
    (tmp_path / "run" / "curves.png").unlink()
    train_small(tmp_path / "run")
    assert read_metrics(metrics)[-1]["event"] == "summary"
    assert (tmp_path / "run" / "curves.png").exists()


@pytest.mark.usefixtures("trained")
def test_training_false_leaves_the_runs_own_files_alone(tmp_path: Path, train_small: TrainSmall) -> None:
    names = ("recipe.yaml", "plan.json", "metrics.jsonl", "identity.json")
    before = [(tmp_path / "run" / name).read_bytes() for name in names]
    train_small(tmp_path / "run", training=False, max_updates=1)
    assert [(tmp_path / "run" / name).read_bytes() for name in names] == before


def test_case_126_one_checkpoint_of_one_epoch_serves_a_validation(
    tmp_path: Path, train_small: TrainSmall
) -> None:
    trained = train_small(tmp_path / "run", num_epochs=1)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["6"]
    again = train_small(tmp_path / "run", num_epochs=1, training=False)
    assert again.metrics["accuracy"] == trained.metrics["validation"]["accuracy"]


def test_a_full_disk_is_one_sentence(tmp_path: Path, train_small: TrainSmall) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    train_small(tmp_path / "run", max_updates=2, lr_schedule="const")
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(RunFailedError, match=r"checkpoint (of update 2 )?is intact"):
            train_small(tmp_path / "run", lr_schedule="const")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert train_small(tmp_path / "run", lr_schedule="const").status == "finished"


def test_padding_is_not_counted(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", remainder="pad", num_epochs=1)
    (entry,) = [e for e in read_metrics(tmp_path / "run" / "metrics.jsonl") if e["event"] == "train"]
    assert entry["samples"] == 100


@pytest.mark.usefixtures("trained")
def test_a_changed_length_of_a_bound_schedule_is_said(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", num_epochs=4)
    assert "planned for 18 updates and now has 24" in (tmp_path / "run" / "rank-0.log").read_text()


@pytest.mark.parametrize(("option", "value"), [("stop_at", "accuracy=0.05"), ("patience", 1)])
def test_a_training_ends_early_and_stays_ended(
    tmp_path: Path, train_small: TrainSmall, option: str, value: object
) -> None:
    options = {option: value, "learning_rate": 0.0}
    first = train_small(tmp_path / "run", **options)
    assert first.status == "finished"
    assert first.updates == (6 if option == "stop_at" else 12)
    assert first.metrics["ended_by"].startswith("--" + option.replace("_", "-"))
    again = train_small(tmp_path / "run", **options)
    assert again.updates == first.updates
    assert train_small(tmp_path / "run", learning_rate=0.0).updates == 18


def test_patience_counts_across_a_stop(tmp_path: Path, train_small: TrainSmall) -> None:
    with signal_after(13):
        train_small(tmp_path / "run", patience=3, learning_rate=0.0, num_epochs=9)
    assert train_small(tmp_path / "run", patience=3, learning_rate=0.0, num_epochs=9).updates == 24


def test_time_that_is_up_has_its_own_status(tmp_path: Path, train_small: TrainSmall) -> None:
    result = train_small(tmp_path / "run", max_time="0.000001")
    assert (result.status, result.exit_status, result.updates) == ("stopped", 75, 1)
    assert train_small(tmp_path / "run").status == "finished"


def test_averaged_weights_are_what_is_measured_and_kept(tmp_path: Path, train_small: TrainSmall) -> None:
    plain, averaged = (train_small(tmp_path / str(ema), ema=ema) for ema in (None, 0.9))
    (row,) = drivetrain.evaluate(tmp_path / "0.9")
    assert row["loss"] == pytest.approx(averaged.metrics["validation"]["loss"], rel=1e-6)
    assert row["loss"] != pytest.approx(plain.metrics["validation"]["loss"], rel=1e-3)
    weights = [
        (tmp_path / name / "checkpoints" / "18" / "model.safetensors").read_bytes()
        for name in ("None", "0.9")
    ]
    assert weights[0] == weights[1]


def test_averaged_weights_survive_a_stop(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "straight", ema=0.9)
    with signal_after(7):
        train_small(tmp_path / "run", ema=0.9)
    train_small(tmp_path / "run", ema=0.9)
    assert final_files(tmp_path / "run") == final_files(tmp_path / "straight")


@pytest.mark.pictures
@pytest.mark.slow
def test_balanced_class_weights_change_the_training_alone(tmp_path: Path, train_small: TrainSmall) -> None:
    plain = train_small(tmp_path / "plain")
    weighted = train_small(tmp_path / "weighted", class_weights=("balanced",))
    names = plain.model.state_dict()
    assert any(not torch.equal(value, weighted.model.state_dict()[name]) for name, value in names.items())
    (row,) = drivetrain.evaluate(tmp_path / "weighted")
    assert len(row["class_accuracies"]) == 10
    assert row["top5_accuracy"] >= row["accuracy"]
    assert (tmp_path / "weighted" / "confusion.png").is_file()


def test_training_false_without_a_checkpoint_warns(tmp_path: Path, train_small: TrainSmall) -> None:
    fresh = train_small(tmp_path / "run", training=False)
    assert fresh.status == "validated"
    assert "untrained initial weights" in (tmp_path / "run" / "rank-0.log").read_text()


def test_a_scale_that_is_too_large_is_what_the_advice_names(tmp_path: Path, train_small: TrainSmall) -> None:
    options = {"precision": "16.32", "half_type": "float16", "loss_scaling": 1e7}
    with pytest.raises(RunFailedError, match=r"at update \d+; .*try a smaller --loss-scaling"):
        train_small(tmp_path / "run", **options)


def test_a_loss_that_is_no_number_stops_the_run_before_its_checkpoint(
    tmp_path: Path, train_small: TrainSmall
) -> None:
    with pytest.raises(RunFailedError, match=r"the loss became .* at update \d+.*--learning-rate"):
        train_small(tmp_path / "run", learning_rate=1e12, l2_regularization=1e6, log_every=2)
    for path in (tmp_path / "run").glob("checkpoints/*/model.safetensors"):
        from safetensors.torch import load_file

        assert all(bool(torch.isfinite(value).all()) for value in load_file(path).values())


def test_the_best_checkpoint_is_kept(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", num_epochs=6, keep_checkpoints=1)
    entries = [e for e in read_metrics(tmp_path / "run" / "metrics.jsonl") if e["event"] == "validation"]
    best = max(entries, key=lambda entry: (entry["accuracy"], -entry["update"]))["update"]
    kept = {int(path.name) for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert kept == {best, 36}


def test_the_plan_of_a_run_is_what_it_did(trained_once: drivetrain.RunResult) -> None:
    plan = json.loads((trained_once.directory / "plan.json").read_text())
    assert plan["batch"] == {"micro": 8, "replicas": 1, "accumulation": 2, "global": 16}
    assert plan["epoch"]["samples"] == 100
    assert plan["total_updates"] == 18


@pytest.mark.parametrize("executions", ["1", "2", "1/3", "0"])
def test_executions_do_not_change_the_result(
    tmp_path: Path, train_small: TrainSmall, executions: str, logged_each_update: drivetrain.RunResult
) -> None:
    other = train_small(tmp_path / "other", logs_per_epoch=executions)
    for name, value in logged_each_update.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name]), name


def test_a_second_epochs_bad_worker_data_surfaces(tmp_path: Path) -> None:
    """An error inside a loader worker reaches the user with its own words."""

    class Broken(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return 32

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            if index == 20:
                raise RuntimeError("sample 20 is rotten")
            return torch.zeros(1, 8, 8), index % 2

    with pytest.raises(Exception, match="sample 20 is rotten"):
        drivetrain.train(
            quiet=True,
            data=Broken(),
            output_dir=str(tmp_path / "run"),
            data_placement="stream",
            num_workers=0,
            micro_batch_size=8,
            num_classes=2,
            validation=False,
        )


@pytest.mark.parametrize("accumulation", [1, 2, 8])
def test_constant_gradients_are_not_scaled(
    tmp_path: Path, accumulation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sample's gradient is 1: the update's must be exactly 1 for any accumulation."""
    found: list[float] = []
    finished_gradient = WeightMover._finished_gradient

    def keep(self: WeightMover) -> torch.Tensor:
        found.append(float(self.parameters.gradients[0]))
        return finished_gradient(self)

    monkeypatch.setattr(WeightMover, "_finished_gradient", keep)
    monkeypatch.setattr(ClassificationTask, "losses", lambda self, logits, labels: logits[:, 0])
    drivetrain.train(
        quiet=True,
        model=_Ones(),
        data=(np.zeros((16, 4, 4, 1), np.uint8), np.arange(16) % 2),
        output_dir=str(tmp_path / "run"),
        micro_batch_size=16 // accumulation,
        gradient_accumulation_count=accumulation,
        max_updates=2,
        num_classes=2,
        validation_fraction=0.0,
    )
    assert found == [1.0, 1.0]


class _Ones(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(len(images), 1)
        return torch.cat([self.weight * ones, torch.zeros(len(images), 1)], 1)


@pytest.mark.parametrize("goal", ["accuracy=nan", "accuracy=97", "loss=-1", "speed=3", "accuracy"])
def test_a_goal_that_cannot_be_reached_is_refused(tmp_path: Path, train_small: TrainSmall, goal: str) -> None:
    with pytest.raises(BadInputError, match=r"--stop-at accuracy=0\.97 works"):
        train_small(tmp_path / "run", stop_at=goal)
    assert list(tmp_path.iterdir()) == []
