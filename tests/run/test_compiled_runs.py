"""Runs whose parts are compiled, by a compiler that compiles nothing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from torch import Tensor, nn

from drivetrain.core.files import read_json
from drivetrain.devices.code_folder import CACHE_VARIABLE, code_key
from drivetrain.program.training_program import TrainingProgram
from drivetrain.run.compiling import compile_choice
from drivetrain.run.compiling import compile_choice as compile_gains
from drivetrain.run.compiling.compile_timer import ProgramTimer
from drivetrain.store.metrics_file import read_metrics
from tests.devices.stand_in_compiler import CompilerError, compile_by
from tests.run.small_training import TrainSmall, final_files, signal_after

pytestmark = pytest.mark.usefixtures("no_pictures")

# All that a program may keep from one update to the next.
OPTIONS: dict[str, Any] = {
    "compile": "auto",
    "ema": 0.9,
    "optimizer": "adam",
    "learning_rate": 0.01,
    "augment": True,
    "remainder": "pad",
    "clip_norm": 1.0,
    "num_epochs": 2,
}


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compile_gains, "_known", {})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every run is long enough, and measures a compiler that halves the time; returns what it measured."""
    found: list[str] = []
    original = ProgramTimer._time

    def timed(self: ProgramTimer) -> tuple[float, float]:
        original(self)
        is_on = self._program.compiled.is_on
        found.append("compiled" if is_on else "plain")
        return (2.0, 0.5) if is_on else (0.0, 1.0)

    monkeypatch.setattr(ProgramTimer, "_time", timed)
    monkeypatch.setattr("drivetrain.run.compiling.compile_timer._FEWEST_TIMED", 2)
    monkeypatch.setattr("drivetrain.run.compiling.compile_timer._MOST_TIMED", 2)
    monkeypatch.setattr(compile_choice, "FEWEST_UPDATES", 1)
    monkeypatch.setattr(compile_choice, "LEAST_CPU_S", 1.0)
    return found


class _Noting(nn.Module):
    """A model that could compile itself, and notes where its code would be kept."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.folders: set[tuple[str, str]] = set()

    def forward(self, images: Tensor) -> Tensor:
        self.folders.add((Path(os.environ[CACHE_VARIABLE]).name, code_key()))
        return cast(Tensor, self.layer(images.flatten(1)))


def test_a_model_that_compiles_itself_keeps_its_code_in_the_folder_of_this_process(
    tmp_path: Path, train_small: TrainSmall
) -> None:
    before = os.environ[CACHE_VARIABLE]
    trained = train_small(tmp_path / "run", model=_Noting(), compile="off", max_updates=1).model
    assert isinstance(trained, _Noting)
    assert trained.folders
    assert all(folder == key for folder, key in trained.folders)
    assert os.environ[CACHE_VARIABLE] == before


@pytest.mark.parametrize(
    "placement", [{"data_placement": "resident"}, {"data_placement": "stream", "num_workers": 0}]
)
def test_measuring_before_the_first_update_changes_no_bit(
    placement: dict[str, Any],
    tmp_path: Path,
    train_small: TrainSmall,
    measured: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {**OPTIONS, **placement}
    compiled = compile_by(monkeypatch)
    train_small(tmp_path / "off", **{**options, "compile": "off"})
    assert (measured, compiled) == ([], [])
    result = train_small(tmp_path / "auto", **options)
    assert measured == ["plain", "compiled"]
    assert {function.__name__ for function in compiled} == {"_run", "run", "_move_weights"}
    assert final_files(tmp_path / "auto") == final_files(tmp_path / "off")
    assert result.metrics["compile"].startswith(
        "compile on: an update takes 0.5 s compiled and 1 s uncompiled"
    )
    assert result.metrics["compile_seconds"] > 2
    assert result.metrics["seconds"]["compilation"] > 2
    losses = [
        [entry["loss"] for entry in read_metrics(tmp_path / name / "metrics.jsonl") if "loss" in entry]
        for name in ("auto", "off")
    ]
    assert losses[0] == losses[1]


def test_a_stopped_run_keeps_its_choice(
    tmp_path: Path, train_small: TrainSmall, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compile_by(monkeypatch)
    with signal_after(9):
        assert train_small(tmp_path / "run", **OPTIONS).status == "stopped"
    plan = read_json(tmp_path / "run" / "plan.json")
    assert plan["compile"]["on"]
    # Even where what was remembered says something else by now.
    compile_gains.remember_gain(plan["compile"]["marks"], compile_gains.Gain(plain_s=1.0, compiled_s=9.0))
    compiled.clear()
    result = train_small(tmp_path / "run", **OPTIONS)
    assert (
        result.metrics["compile"]
        == f"compile on, as chosen when the run started: {plan['compile']['reason']}"
    )
    assert len(compiled) == 3
    assert measured == ["plain", "compiled"]
    train_small(tmp_path / "off", **{**OPTIONS, "compile": "off"})
    assert final_files(tmp_path / "run") == final_files(tmp_path / "off")


def test_a_request_to_stop_is_heard_while_measuring(
    tmp_path: Path, train_small: TrainSmall, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_by(monkeypatch)
    with signal_after(1):
        stopped = train_small(tmp_path / "run", **OPTIONS)
    assert (stopped.status, stopped.updates, measured) == ("stopped", 0, [])
    assert "compile" not in read_json(tmp_path / "run" / "plan.json")


def test_a_compiler_that_fails_changes_no_bit_and_is_said_once(
    tmp_path: Path,
    train_small: TrainSmall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train_small(tmp_path / "off", **{**OPTIONS, "compile": "off"})

    def fail(function: Callable[..., Any], *arguments: Any) -> Any:
        raise CompilerError("no C++ compiler")

    compile_by(monkeypatch, fail)
    train_small(tmp_path / "on", **{**OPTIONS, "compile": "on"})
    assert final_files(tmp_path / "on") == final_files(tmp_path / "off")
    log = (tmp_path / "on" / "rank-0.log").read_text()
    for what in ("the model", "augmentation", "the optimiser"):
        assert (
            log.count(f"{what} runs uncompiled, because compiling it failed: CompilerError: no C++ compiler")
            == 1
        )


def test_stages_that_cannot_be_compiled_run_as_they_are(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"max_updates": 2, "recomputation": True}
    train_small(tmp_path / "off", **options, compile="off")

    def fail_late(function: Callable[..., Any], *arguments: Any) -> Any:
        function(*arguments)
        raise CompilerError("no C++ compiler")

    compiled = compile_by(monkeypatch, fail_late)
    train_small(tmp_path / "on", **options, compile="on")
    assert final_files(tmp_path / "on") == final_files(tmp_path / "off")
    log = (tmp_path / "on" / "rank-0.log").read_text()
    assert log.count("runs uncompiled, because compiling it failed: CompilerError") == len(compiled) > 1
    assert "stage 0 runs uncompiled" in log


def test_automatic_compiling_stops_where_the_compiler_fails(
    tmp_path: Path, train_small: TrainSmall, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(function: Callable[..., Any], *arguments: Any) -> Any:
        raise CompilerError("no C++ compiler")

    compile_by(monkeypatch, fail)
    result = train_small(tmp_path / "run", **OPTIONS)
    assert result.metrics["compile"].startswith("compile off: the model runs uncompiled")


def test_the_next_fold_measures_nothing(
    tmp_path: Path, train_small: TrainSmall, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_by(monkeypatch)
    for fold in (0, 1):
        result = train_small(tmp_path / f"{fold}", **OPTIONS, folds=2, fold=fold)
        assert result.metrics["compile"].startswith("compile on")
    assert measured == ["plain", "compiled"]


def test_short_runs_and_stages_are_left_alone(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compile_by(monkeypatch)
    updates: list[int] = []
    original = TrainingProgram.run_update

    def counted(self: TrainingProgram, update: int) -> None:
        updates.append(update)
        original(self, update)

    monkeypatch.setattr(TrainingProgram, "run_update", counted)
    short = train_small(tmp_path / "short", max_updates=2)
    assert short.metrics["compile"] == "compile off: 2 updates are too few to gain from it"
    assert updates == [0, 1]
    monkeypatch.setattr(compile_choice, "FEWEST_UPDATES", 1)
    staged = train_small(tmp_path / "staged", max_updates=2, recomputation=True)
    assert staged.metrics["compile"] == (
        "compile off: the model runs in stages, which is compiled only with --compile on"
    )
    assert compiled == []


def test_speed_does_not_count_the_first_update(tmp_path: Path, train_small: TrainSmall) -> None:
    result = train_small(tmp_path / "run", compile="off", max_updates=6)
    spent = result.metrics["seconds"]
    updates = spent["step"] + spent["data"] + spent["transfer"] - result.metrics["compile_seconds"]
    assert result.metrics["images_per_second"] == pytest.approx(5 * 16 / updates, rel=0.05)


def test_times_are_remembered_for_the_processor_that_they_were_taken_on(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch, measured: list[str]
) -> None:
    """The same key as the one that compiled code is kept by."""
    compile_by(monkeypatch)
    train_small(tmp_path / "run", **OPTIONS)
    plan = read_json(tmp_path / "run" / "plan.json")
    assert plan["compile"]["marks"]["code"] == code_key()
