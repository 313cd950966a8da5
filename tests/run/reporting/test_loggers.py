"""Readers of a run's events: who gets what, in which order, and what a continued run does to a record."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.schema import Recipe
from drivetrain.run.reporting import wandb_log
from drivetrain.run.reporting.loggers import (
    EventLog,
    ScreenLog,
    TimingLog,
    board_folder,
    open_event_log,
    open_worker_log,
    rank_logs,
)
from drivetrain.run.reporting.wandb_log import WandbLog, shareable_config
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import read_metrics
from tests.run.small_training import TrainSmall, signal_after

pytestmark = pytest.mark.usefixtures("no_pictures")


class _Noting:
    """A reader that notes what it is told, beside the others."""

    def __init__(self, name: int, notes: list[tuple[int, str, int]]) -> None:
        self.name, self.notes = name, notes

    def event(self, kind: str, update: int, values: Mapping[str, Any]) -> None:
        self.notes.append((self.name, kind, update))

    def close(self) -> None:
        self.notes.append((self.name, "close", -1))


def test_case_112_readers_get_every_event_in_the_order_they_were_added() -> None:
    notes: list[tuple[int, str, int]] = []
    log = EventLog([_Noting(name, notes) for name in range(9)])
    log.add(_Noting(9, notes))
    for update in range(12 * 10):
        log.training(update, epoch=1, loss=0.0)
        log.validation(update, epoch=1, loss=0.0)
    assert len(notes) == 2400
    assert notes == [
        (name, kind, update)
        for update in range(120)
        for kind in ("train", "validation")
        for name in range(10)
    ]
    log.summary(120)
    log.close()
    assert notes[2400:] == [(name, "summary", 120) for name in range(10)] + [
        (name, "close", -1) for name in range(10)
    ]


def test_case_109_the_first_line_says_how_often_and_the_first_log_what_compiling_took(
    tmp_path: Path, train_small: TrainSmall
) -> None:
    train_small(tmp_path / "run", log_every=5, num_epochs=2)
    lines = (tmp_path / "run" / "rank-0.log").read_text().splitlines()
    first = next(line for line in lines if not line.startswith("warning"))
    assert first.endswith("logging every 5 updates (10 micro-batches)")
    logs = [line for line in lines if " training_accuracy: " in line and line.startswith("update ")]
    assert ["first update: " in line for line in logs] == [True] + [False] * (len(logs) - 1)


def test_case_106_compile_time_is_an_event_value_once(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", log_every=4)
    trainings = [e for e in read_metrics(tmp_path / "run" / "metrics.jsonl") if e["event"] == "train"]
    assert ["compile_seconds" in entry for entry in trainings] == [True] + [False] * (len(trainings) - 1)


def test_the_screen_names_each_kind_of_metric(capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog([ScreenLog(Reporter(), total_updates=9)])
    log.training(3, epoch=1, loss=0.5, accuracy=0.25, images_per_second=10.4)
    log.training(3, epoch=1, loss=0.5, dice=0.25, images_per_second=10.4)
    by_class = {"iou_cell": 0.5, "iou_back": 0.75, "soft_dice_cell": 0.625, "soft_dice_back": 0.875}
    log.validation(3, epoch=1, loss=0.5, dice=0.75, iou=0.625, **by_class)
    log.summary(9)
    assert capsys.readouterr().out.splitlines() == [
        "update 3/9  epoch 1  loss: 0.5000  training_accuracy: 0.2500  images/s: 10",
        "update 3/9  epoch 1  loss: 0.5000  training soft Dice (mean over classes): 0.2500  images/s: 10",
        "update 3/9  epoch 1  validation_loss: 0.5000",
        "    soft Dice: cell 0.6250, back 0.8750; mean over classes 0.7500",
        "    IoU: cell 0.5000, back 0.7500; mean over classes 0.6250",
    ]


def test_timing_is_of_the_time_since_the_last_log(capsys: pytest.CaptureFixture[str]) -> None:
    spent = {"step": 1.0, "data": 0.5}
    log = EventLog([TimingLog(Reporter(verbosity="verbose"), lambda: dict(spent))])
    log.training(1)
    spent["step"] = 3.0
    log.validation(1)
    log.training(2)
    assert capsys.readouterr().out.splitlines() == [
        "  seconds since the last log: step 1.000, data 0.500",
        "  seconds since the last log: step 2.000, data 0.000",
    ]


def _board(folder: Path) -> dict[int, float]:
    """The training loss by update, as TensorBoard shows it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {point.step: point.value for point in events.Scalars("train/loss")}


def test_tensorboard_goes_on_where_the_checkpoint_is(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is cut after update 8, but logged further than its checkpoint: those points are replaced."""
    options = {"log_every": 2, "tensorboard": True}
    train_small(tmp_path / "straight", **options)
    with signal_after(8):
        train_small(tmp_path / "run", **options)
    _add_stray_point(tmp_path / "run" / "tensorboard", update=12)
    assert _board(tmp_path / "run" / "tensorboard")[12] == 99.0
    train_small(tmp_path / "run", **options)
    expected = _board(tmp_path / "straight" / "tensorboard")
    assert list(expected) == [2, 4, 6, 8, 10, 12, 14, 16, 18]
    found = _board(tmp_path / "run" / "tensorboard")
    assert {update: found[update] for update in expected} == expected


def _add_stray_point(folder: Path, *, update: int) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))
    writer.add_scalar("train/loss", 99.0, update)
    writer.close()


def test_log_dir_takes_the_records_out_of_the_run_directory(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", max_updates=2, tensorboard=True, log_dir=str(tmp_path / "logs"))
    logs = tmp_path / "logs" / "run"
    assert len(list(logs.glob("events.*"))) == 1
    assert not (tmp_path / "run" / "tensorboard").exists()
    for name in ("metrics.jsonl", "rank-0.log"):
        assert (logs / name).read_text() == (tmp_path / "run" / name).read_text() != ""


def test_a_copy_of_the_metrics_continues_with_them(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    recipe = Recipe(log_dir=str(tmp_path / "logs"))
    copy = tmp_path / "logs" / "run" / "metrics.jsonl"
    copy.parent.mkdir(parents=True)
    copy.write_text("of an earlier run\n")
    for update in (1, 2):
        log = open_event_log(recipe, directory=directory, screen=_Noting(0, []), first_update=update - 1)
        log.training(update, loss=0.5)
        log.close()
        events = read_metrics(copy)
        assert [event["update"] for event in events] == list(range(1, update + 1))
        assert [event["update"] for event in read_metrics(directory.metrics)] == list(range(1, update + 1))


def test_every_rank_has_a_tensorboard_of_its_own(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    recipe = Recipe(tensorboard=True, log_all_workers=True, replicas=2)
    options: dict[str, Any] = {"directory": directory, "screen": _Noting(0, []), "first_update": 0}
    unseen = open_worker_log(recipe, worker=1, **options)
    unseen.training(1, loss=0.5)
    unseen.close()
    assert not directory.path.exists()
    directory.path.mkdir()
    for log in (
        open_event_log(recipe, worker=0, **options),
        open_worker_log(recipe, worker=1, **options),
    ):
        log.training(1, loss=0.5)
        log.close()
    assert sorted(path.name for path in directory.tensorboard.iterdir()) == ["worker_0", "worker_1"]
    assert [_board(directory.tensorboard / f"worker_{rank}") for rank in (0, 1)] == 2 * [{1: 0.5}]
    elsewhere = Recipe(tensorboard=True, log_all_workers=True, replicas=2, log_dir=str(tmp_path / "logs"))
    assert board_folder(elsewhere, directory, worker=3) == tmp_path / "logs" / "run" / "worker_3"
    assert rank_logs(elsewhere, directory, 3) == [tmp_path / "logs" / "run" / "rank-3.log"]
    assert rank_logs(recipe, directory, 3) == [directory.path / "rank-3.log"]


def test_log_dir_must_be_a_folder(tmp_path: Path, train_small: TrainSmall) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BadInputError, match="--log-dir logs"):
            train_small(tmp_path / "run", log_dir=str(path), tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_without_the_package_wandb_is_refused_before_anything_is_written(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb_log, "find_spec", lambda name: None)
    with pytest.raises(BadInputError, match="run pip install wandb,"):
        train_small(tmp_path / "run", wandb=True)
    assert list(tmp_path.iterdir()) == []


def test_case_111_what_is_shared_leaves_the_home_directory_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    recipe = Recipe(
        data_dir="/home/someone/data",
        output_dir="/home/someone-else/run",
        model_params={"weights": ["/home/someone/w", 3]},
    )
    config = shareable_config(recipe)
    assert config["data_dir"] == "~/data"
    assert config["output_dir"] == "/home/someone-else/run"
    assert config["model_params"] == {"weights": ["~/w", 3]}
    assert config["micro_batch_size"] == 32


class _FakeRun:
    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.metrics: list[str] = []

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.metrics.append(f"{name} over {step_metric}")

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.logged.append({"finished": True})


class _FakeWandb:
    """Stands in for the package, so that what it is told can be seen."""

    Error = RuntimeError

    def __init__(self) -> None:
        self.runs: list[tuple[dict[str, Any], _FakeRun]] = []
        self.has_login = True

    def login(self, *, prompt: bool) -> bool:
        assert not prompt
        return self.has_login

    def Settings(self, **settings: Any) -> dict[str, Any]:  # noqa: N802
        return settings

    def init(self, **settings: Any) -> _FakeRun:
        self.runs.append((settings, _FakeRun()))
        return self.runs[-1][1]


@pytest.fixture
def fake_wandb(monkeypatch: pytest.MonkeyPatch) -> _FakeWandb:
    fake = _FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(wandb_log, "find_spec", lambda name: fake)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return fake


def test_case_110_a_period_is_logged_once_by_its_mean_and_compiling_at_once(
    tmp_path: Path, train_small: TrainSmall, fake_wandb: _FakeWandb
) -> None:
    train_small(tmp_path / "run", log_every=3, wandb=True)
    ((settings, run),) = fake_wandb.runs
    assert (settings["project"], settings["name"], settings["resume"]) == ("drivetrain", "run", "allow")
    assert settings["config"]["limit_train_samples"] == 100
    assert run.metrics == ["update over None", "* over update"]
    losses = np.load(tmp_path / "run" / "updates.npz")["loss"]
    trainings = [values for values in run.logged if "train/loss" in values]
    assert [values["update"] for values in trainings] == [3, 6, 9, 12, 15, 18]
    assert [values["train/loss"] for values in trainings] == pytest.approx(
        losses.reshape(6, 3).mean(1), rel=1e-6
    )
    assert ["train/compile_seconds" in values for values in trainings] == [True] + [False] * 5
    assert [values["update"] for values in run.logged if "validation/loss" in values] == [6, 12, 18]
    assert run.summary["validation/accuracy"] == run.logged[-2]["validation/accuracy"]
    assert run.logged[-1] == {"finished": True}


def test_a_continued_run_goes_on_with_its_record_and_a_fresh_one_has_its_own(
    tmp_path: Path, train_small: TrainSmall, fake_wandb: _FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    with signal_after(7):
        train_small(tmp_path / "run", wandb=True)
    monkeypatch.delenv("WANDB_PROJECT")
    train_small(tmp_path / "run", wandb=True)
    train_small(tmp_path / "run", wandb=True, overwrite=True)
    first, second, afresh = (settings for settings, _ in fake_wandb.runs)
    assert (first["id"], first["project"]) == (second["id"], second["project"])
    assert first["project"] == "mine"
    assert (afresh["id"] != first["id"], afresh["project"]) == (True, "drivetrain")
    assert json.loads((tmp_path / "run" / "wandb.json").read_text())["id"] == afresh["id"]


def test_only_numbers_are_logged(tmp_path: Path, fake_wandb: _FakeWandb) -> None:
    log = WandbLog(Recipe(), directory=RunDirectory(tmp_path), folder=tmp_path)
    log.event("validation", 4, {"loss": 0.5, "samples": 3, "classes": [0.1], "name": "x", "flag": True})
    log.event("summary", 4, {"seconds": {"step": 1.5}, "device": "cpu", "classes": [0.1]})
    ((_, run),) = fake_wandb.runs
    assert run.logged == [{"update": 4, "validation/loss": 0.5, "validation/samples": 3}]
    assert run.summary == {"seconds/step": 1.5, "device": "cpu"}


def test_wandb_itself_works_offline_and_continues(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    options = {"wandb": True, "log_dir": str(tmp_path / "logs"), "verbosity": "quiet"}
    with signal_after(7):
        train_small(tmp_path / "run", **options)
    finished = train_small(tmp_path / "run", **options)
    assert finished.updates == 18
    identity = json.loads((tmp_path / "run" / "wandb.json").read_text())["id"]
    records = list(
        (tmp_path / "logs" / "run" / "wandb").glob(f"offline-run-*-{identity}/run-{identity}.wandb")
    )
    assert len(records) == 2
    assert all(record.stat().st_size for record in records)


def test_wandb_without_a_login_is_refused_before_anything_is_written(
    fake_wandb: _FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    fake_wandb.has_login = False
    with pytest.raises(BadInputError, match="WANDB_MODE=offline"):
        wandb_log.require_wandb()
    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb_log.require_wandb()
