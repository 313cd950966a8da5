"""A cross-validation is its folds' runs, as one job that can be stopped, continued and started afresh."""

import csv
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drivetrain
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.crossvalidation import fold_training as fold_request
from drivetrain.crossvalidation import job as crossval
from drivetrain.program.training_program import TrainingProgram
from drivetrain.run.compiling import kept_choice
from drivetrain.run.compiling.compile_choice import CompileChoice
from drivetrain.run.start import train_resolved
from drivetrain.store.lock import hold_lock
from tests.run.small_training import SMALL, final_files, signal_after
from tests.run.stopping import result_of

pytestmark = pytest.mark.usefixtures("no_pictures")

Crossval = Callable[..., drivetrain.CrossvalResult]


@pytest.fixture
def cross() -> Crossval:
    """Cross-validates the small recipe with two folds, quietly; options replace its values."""

    def run(path: Path, **options: Any) -> drivetrain.CrossvalResult:
        small = {**SMALL, "folds": 2, "num_epochs": 2, **options}
        return result_of(drivetrain.crossval, quiet=True, output_dir=str(path), **small)

    return run


def test_folds_choose_as_one_job_whether_to_compile(
    tmp_path: Path, cross: Crossval, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, float | None]] = []

    def choose(*_: Any, trainings: int, max_time_s: float | None, **__: Any) -> CompileChoice:
        seen.append((trainings, max_time_s))
        return CompileChoice(is_on=False, reason="the test says so")

    monkeypatch.setattr(kept_choice, "choose_compile", choose)
    cross(tmp_path / "job", folds=3, num_epochs=1, max_time="1h")
    assert seen == [(3, 3600.0)] * 3
    drivetrain.train(**{**SMALL, "num_epochs": 1}, output_dir=str(tmp_path / "run"), quiet=True)
    assert seen[3:] == [(1, None)]


def test_the_folds_are_ordinary_runs_and_the_result_is_theirs(tmp_path: Path, cross: Crossval) -> None:
    result = cross(tmp_path / "job")
    assert (result.status, result.exit_status) == ("finished", 0)
    there = {path.name for path in (tmp_path / "job").iterdir()}
    assert there >= {"fold-0", "fold-1", "crossval.json", "crossval.csv", "curves.png", "README.md"}
    assert not any(name.startswith(".replaced") for name in there)
    drivetrain.train(
        quiet=True,
        output_dir=str(tmp_path / "alone"),
        **{**SMALL, "folds": 2, "num_epochs": 2, "fold": 1},
    )
    assert final_files(tmp_path / "alone") == final_files(tmp_path / "job" / "fold-1")
    record = json.loads((tmp_path / "job" / "crossval.json").read_text())
    assert record["status"] == "finished"
    last = [fold["last"]["accuracy"] for fold in record["per_fold"]]
    assert record["statistics"]["last"]["accuracy"]["mean"] == pytest.approx(np.mean(last))
    assert record["statistics"]["last"]["accuracy"]["standard_deviation"] == pytest.approx(
        np.std(last, ddof=1)
    )
    rows = list(csv.DictReader((tmp_path / "job" / "crossval.csv").open()))
    assert [row["fold"] for row in rows] == ["0", "1", "mean", "standard_deviation"]
    assert [float(row["last_accuracy"]) for row in rows[:2]] == last
    assert (tmp_path / "job" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_stop_passes_through_and_the_job_continues_with_the_same_bits(
    tmp_path: Path, cross: Crossval, monkeypatch: pytest.MonkeyPatch
) -> None:
    cross(tmp_path / "straight")
    with _signal_in_fold(monkeypatch, fold=1, update=3, number=signal.SIGINT):
        stopped = cross(tmp_path / "job")
    assert (stopped.status, stopped.exit_status, len(stopped.folds)) == ("stopped", 130, 1)
    first_fold = (tmp_path / "job" / "fold-0" / "metrics.jsonl").stat().st_mtime_ns
    assert cross(tmp_path / "job").status == "finished"
    assert (tmp_path / "job" / "fold-0" / "metrics.jsonl").stat().st_mtime_ns == first_fold
    for fold in ("fold-0", "fold-1"):
        assert final_files(tmp_path / "job" / fold) == final_files(tmp_path / "straight" / fold)
    assert "continuing after update 4" in (tmp_path / "job" / "fold-1" / "rank-0.log").read_text()


class _signal_in_fold:  # noqa: N801
    """Sends a signal while an update of one fold is running."""

    def __init__(self, patch: pytest.MonkeyPatch, *, fold: int, update: int, number: int) -> None:
        self._patch, self._fold, self._after = patch, fold, signal_after(update, number)

    def __enter__(self) -> None:
        def train(resolved: Any, **options: Any) -> drivetrain.RunResult:
            if resolved.recipe.fold != self._fold:
                return train_resolved(resolved, **options)
            with self._after:
                return train_resolved(resolved, **options)

        self._patch.setattr(fold_request, "train_resolved", train)

    def __exit__(self, *error: object) -> None:
        self._patch.setattr(fold_request, "train_resolved", train_resolved)


def test_a_signal_while_a_fold_is_finishing_starts_no_other_fold(
    tmp_path: Path, cross: Crossval, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _signal_in_fold(monkeypatch, fold=0, update=11, number=signal.SIGTERM):
        stopped = cross(tmp_path / "job")
    assert (stopped.status, stopped.exit_status) == ("stopped", 143)
    assert not (tmp_path / "job" / "fold-1").exists()


def test_a_finished_job_trains_nothing(
    tmp_path: Path, cross: Crossval, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cross(tmp_path / "job")
    monkeypatch.setattr(TrainingProgram, "run_update", _fail)
    again = cross(tmp_path / "job")
    assert (again.status, again.exit_status) == ("finished", 0)
    assert again.statistics == before.statistics


def _fail(self: TrainingProgram, update: int) -> None:
    raise AssertionError("nothing was left to train")


def test_a_longer_training_continues_every_fold(tmp_path: Path, cross: Crossval) -> None:
    cross(tmp_path / "job", lr_schedule="const")
    longer = cross(tmp_path / "job", lr_schedule="const", num_epochs=3)
    assert [fold.updates for fold in longer.folds] == [(6, 12, 18)] * 2


def test_a_fold_that_fails_is_named(tmp_path: Path, cross: Crossval, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(resolved: Any, **options: Any) -> drivetrain.RunResult:
        if resolved.recipe.fold == 1:
            raise RunFailedError("the loss became nan.")
        return train_resolved(resolved, **options)

    monkeypatch.setattr(fold_request, "train_resolved", failing)
    with pytest.raises(RunFailedError, match=r"fold 1 \(2 of 2\) .* failed: the loss became nan\."):
        cross(tmp_path / "job")


def test_overwrite_starts_every_fold_afresh(tmp_path: Path, cross: Crossval) -> None:
    cross(tmp_path / "job", folds=3, num_epochs=1)
    (tmp_path / "job" / "notes.txt").write_text("mine")
    result = cross(tmp_path / "job", seed=7, overwrite=True)
    assert len(result.folds) == 2
    assert not (tmp_path / "job" / "fold-2").exists()
    assert not (tmp_path / "job" / ".replaced").exists()
    assert (tmp_path / "job" / "notes.txt").read_text() == "mine"


def test_bad_input_leaves_everything_as_it_was(tmp_path: Path, cross: Crossval) -> None:
    cross(tmp_path / "job", num_epochs=1)
    before = {path: path.read_bytes() for path in sorted((tmp_path / "job").rglob("*")) if path.is_file()}
    for options in ({"device": "cuda:77"}, {"micro_batch_size": 5000, "gradient_accumulation_count": 1}):
        with pytest.raises(BadInputError):
            cross(tmp_path / "job", overwrite=True, **options)
        with pytest.raises(BadInputError):
            cross(tmp_path / "new" / "job", **options)
    after = {path: path.read_bytes() for path in sorted((tmp_path / "job").rglob("*")) if path.is_file()}
    assert after == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"device": "cuda:77"},
        {"model_params": {"nonsense": 3}},
        {"folds": 5000},
        {"micro_batch_size": 5000, "gradient_accumulation_count": 1},
        {"folds": 5000, "replicas": 2},
        {"model_params": {"nonsense": 3}, "parallel_folds": 2},
    ],
)
def test_bad_input_is_refused_before_anything_is_said(
    tmp_path: Path, wrong: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**SMALL, "folds": 2, "num_epochs": 1, **wrong}
    with pytest.raises(BadInputError):
        drivetrain.crossval(output_dir=str(tmp_path / "job"), **options)
    assert capsys.readouterr().out == ""


def test_negative_control_every_fold_that_begins_is_named_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**SMALL, "folds": 2, "num_epochs": 1, "output_dir": str(tmp_path / "job")}
    drivetrain.crossval(**options)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fold 0 (1 of 2)"
    assert lines.count("fold 1 (2 of 2)") == 1
    assert lines[lines.index("fold 1 (2 of 2)") - 1].startswith("run directory: ")
    drivetrain.crossval(**options)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["fold 0 (1 of 2) is finished", "fold 1 (2 of 2) is finished"]


def test_a_job_that_cannot_go_on_does_not_tell_what_is_finished(
    tmp_path: Path, cross: Crossval, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with _signal_in_fold(monkeypatch, fold=1, update=1, number=signal.SIGINT):
        cross(tmp_path / "job", num_epochs=1)
    options = {**SMALL, "folds": 2, "num_epochs": 1, "output_dir": str(tmp_path / "job")}
    with pytest.raises(BadInputError):
        drivetrain.crossval(**{**options, "device": "cuda:77"})
    assert capsys.readouterr().out == ""
    drivetrain.crossval(**options)
    assert capsys.readouterr().out.splitlines()[:2] == ["fold 0 (1 of 2) is finished", "fold 1 (2 of 2)"]


def test_what_must_not_change_is_named(tmp_path: Path, cross: Crossval) -> None:
    cross(tmp_path / "job", num_epochs=1)
    with pytest.raises(BadInputError, match="--folds is 3"):
        cross(tmp_path / "job", folds=3)
    with pytest.raises(BadInputError, match="--seed is 5"):
        cross(tmp_path / "job", seed=5)


def test_other_directories_are_not_touched(tmp_path: Path, cross: Crossval) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("important")
    for overwrite in (False, True):
        with pytest.raises(BadInputError, match=r"holds thesis\.txt and no cross-validation"):
            cross(tmp_path / "mine", overwrite=overwrite)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_second_process_is_refused(tmp_path: Path, cross: Crossval) -> None:
    (tmp_path / "job").mkdir()
    with hold_lock(tmp_path / "job"), pytest.raises(BadInputError, match="in use by another process"):
        cross(tmp_path / "job")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"folds": None}, "--folds 5 works"),
        ({"fold": 1}, "--fold 1 has no effect in crossval"),
        ({"validation": False, "limit_validation_samples": None}, "leave out --validation False"),
        ({"training": False}, "leave out --training False"),
    ],
)
def test_what_makes_no_cross_validation_is_refused(
    tmp_path: Path, cross: Crossval, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInputError, match=words):
        cross(tmp_path / "job", **options)
    assert list(tmp_path.iterdir()) == []


def test_max_time_counts_for_the_whole_job(
    tmp_path: Path, cross: Crossval, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fold takes 200 of 500 seconds: the third has 100 left, and a fourth none."""
    allowed: list[str] = []

    def pretend(resolved: Any, **options: Any) -> Any:
        allowed.append(resolved.recipe.max_time)
        return _pretend(resolved)

    monkeypatch.setattr(crossval._CrossvalSession, "_spent_s", lambda job: 200.0 * len(job.results))
    monkeypatch.setattr(fold_request, "train_resolved", pretend)
    stopped = cross(tmp_path / "job", max_time="500", folds=4)
    assert (stopped.status, stopped.exit_status) == ("stopped", 75)
    assert allowed == ["500.000", "300.000", "100.000"]


def _pretend(resolved: Any) -> Any:
    """A fold that is validated once without being trained."""
    directory = Path(resolved.recipe.output_dir)
    directory.mkdir()
    entry = {"event": "validation", "update": 1, "loss": 1.0, "accuracy": 0.5}
    (directory / "metrics.jsonl").write_text(json.dumps(entry) + "\n")
    return type("Result", (), {"status": "finished"})


def test_own_data_and_model_in_python(tmp_path: Path) -> None:
    import torch
    from torch import nn

    images = np.random.default_rng(0).integers(0, 255, (24, 4, 4, 1)).astype(np.uint8)
    labels = np.arange(24) % 2
    layer = nn.Linear(16, 2)
    model = nn.Sequential(nn.Flatten(), layer)
    before = layer.weight.clone()
    options: dict[str, Any] = {"folds": 3, "micro_batch_size": 8, "num_epochs": 1, "device": "cpu"}
    path = str(tmp_path / "job")
    result = drivetrain.crossval(model=model, data=(images, labels), output_dir=path, quiet=True, **options)
    assert len(result.folds) == 3
    assert torch.equal(layer.weight, before)
    with pytest.raises(BadInputError, match="the content of the data"):
        drivetrain.crossval(model=model, data=(images[::-1], labels), output_dir=path, quiet=True, **options)


def test_logs_of_the_folds_lie_under_the_jobs_name(tmp_path: Path, cross: Crossval) -> None:
    cross(tmp_path / "job", num_epochs=1, tensorboard=True, log_dir=str(tmp_path / "logs"))
    assert sorted(path.name for path in (tmp_path / "logs" / "job").iterdir()) == ["fold-0", "fold-1"]
