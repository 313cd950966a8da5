"""How often a run validates where nobody said, by times that a test gives."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from drivetrain.inference.model.evaluator import Evaluator
from drivetrain.plan.events import HostEvents, RarerEvaluation
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.loop.validation_pace import ValidationPace, fixed_by_option, kept_rarer, rarer_in_words
from drivetrain.run.start import train_resolved
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import read_metrics
from drivetrain.tasks.task import Evaluation
from tests.run.rank_runs import train_rank
from tests.run.shown_work import ShownWork
from tests.run.small_training import SMALL, TrainSmall, final_files, signal_after

pytestmark = pytest.mark.usefixtures("no_pictures")

EVENTS = HostEvents(
    log_updates=100,
    evaluate_updates=Fraction(100),
    checkpoint_updates=100,
    total_updates=6000,
    logs_per_epoch=1.0,
    execution_updates=100,
)


def seen(*lasted_s: float, update_s: float, events: HostEvents = EVENTS, **options: Any) -> Any:
    """What the validations after the first epochs lead to, the last of them alone."""
    pace = ValidationPace(events=events, **options)
    choices = [
        pace.see(100 * number, seconds, update_s=update_s) for number, seconds in enumerate(lasted_s, start=1)
    ]
    assert all(choice is None for choice in choices[:-1])
    return choices[-1]


def evaluations(events: HostEvents) -> list[int]:
    return [update for update in range(1, events.total_updates + 1) if events.is_evaluation(update)]


def cost_s(events: HostEvents, each_s: float) -> float:
    return len(evaluations(events)) * each_s


@pytest.mark.parametrize("can_break_off", [True, False])
@pytest.mark.parametrize(("lasted_s", "needed"), [(3.0, 1), (10.0, 2), (30.0, 2), (79.0, 2)])
def test_validations_take_at_most_a_fifth_of_the_training(
    lasted_s: float, needed: int, can_break_off: bool
) -> None:
    update_s = 0.2  # 20 s an epoch, 1200 s in all
    choice = seen(*[lasted_s] * needed, update_s=update_s, can_break_off=can_break_off)
    events = replace(EVENTS, rarer=choice.rarer)
    assert cost_s(events, lasted_s) <= 0.2 * 6000 * update_s
    assert evaluations(events)[-1] == 6000
    assert (choice.sentence is None) == (needed == 1)
    assert needed == 1 or choice.sentence.endswith(". This takes at most a fifth of the training time.")


@pytest.mark.parametrize("lasted_s", [81.0, 119.0, 200.0, 5000.0])
def test_what_cannot_be_broken_off_is_chosen_at_the_first_where_a_second_does_not_fit(
    lasted_s: float,
) -> None:
    choice = seen(lasted_s, update_s=0.2, can_break_off=False)
    assert evaluations(replace(EVENTS, rarer=choice.rarer)) == [100, 6000]
    is_kept = 2 * lasted_s <= 0.2 * 1200
    assert ("at most a fifth" in choice.sentence) == is_kept
    assert is_kept or choice.sentence.endswith(
        f"All validations together take about {2 * lasted_s:.2g} s, the training 1.2e+03 s."
    )


def test_a_first_validation_that_warms_up_changes_nothing_and_is_not_the_measure() -> None:
    assert seen(100.0, update_s=0.2) is None
    assert seen(100.0, 0.1, update_s=0.2).rarer == RarerEvaluation(periods=2, times=1)
    assert seen(79.0, update_s=0.2, can_break_off=False) is None
    assert seen(79.0, 0.1, update_s=0.2, can_break_off=False).rarer == RarerEvaluation(periods=2, times=1)


def test_what_is_fixed_waits_for_the_second_validation_whatever_the_first_took() -> None:
    fixed: dict[str, Any] = {"can_break_off": False, "fixed_by": "--patience 3"}
    assert seen(5000.0, update_s=0.2, **fixed) is None
    assert seen(5000.0, 0.1, update_s=0.2, **fixed).rarer is None


def test_it_says_how_often_and_what_does_otherwise() -> None:
    choice = seen(10.0, 10.0, update_s=0.2)
    assert choice.rarer == RarerEvaluation(periods=2, times=4)
    assert choice.sentence == (
        "a validation takes 10 s, and the training between two validations takes 20 s. From now on the model "
        "is validated every 4 epochs (400 updates) and after the last update; --evaluate-every 100 validates "
        "every epoch. This takes at most a fifth of the training time."
    )


@pytest.mark.parametrize(
    ("change", "rarely", "often"),
    [
        (
            {"log_updates": 75, "logs_per_epoch": 0.5, "evaluate_updates": Fraction(75, 2)},
            "every 4 epochs (150 updates)",
            "--evaluate-every 38 validates about every epoch",
        ),
        (
            {"log_updates": 300, "logs_per_epoch": 1 / 3, "evaluate_updates": Fraction(300)},
            "every 12 epochs (1200 updates)",
            "--evaluate-every 300 validates every 3 epochs",
        ),
    ],
)
def test_periods_that_are_no_epoch_are_said_as_they_are(
    change: dict[str, Any], rarely: str, often: str
) -> None:
    words = rarer_in_words(replace(EVENTS, **change), RarerEvaluation(periods=2, times=4))
    assert words == f"the model is validated {rarely} and after the last update; {often}"


def test_a_fifth_is_not_claimed_of_a_short_training_or_of_a_validation_that_was_broken_off() -> None:
    short = seen(0.5, 0.5, update_s=0.002)
    assert short.sentence.endswith("All validations together take about 8.5 s, the training 12 s.")
    assert "fifth" not in str(ValidationPace(events=EVENTS).break_off(100).sentence)


def test_a_few_seconds_are_nothing_to_save() -> None:
    short = replace(EVENTS, total_updates=1000)
    assert seen(0.9, update_s=1e-4, events=short).rarer.times == 1


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"patience": 3}, "--patience 3"),
        ({"stop_at": "accuracy=0.9"}, "--stop-at accuracy=0.9"),
        ({"parallel_folds": 2, "folds": 4}, "--parallel-folds 2"),
        ({}, None),
    ],
)
def test_options_that_depend_on_validations_keep_them_where_they_are(
    option: dict[str, Any], words: str | None
) -> None:
    recipe = resolve_recipe(overrides={"dataset": "digits"}).recipe.model_copy(update=option)
    assert fixed_by_option(recipe) == words


def test_what_is_fixed_is_not_changed_but_its_cost_is_said() -> None:
    choice = seen(10.0, 10.0, update_s=0.2, fixed_by="--patience 3")
    assert choice.rarer is None
    assert "because of --patience 3; --evaluate-every 400 would save time" in choice.sentence
    pace = ValidationPace(events=EVENTS, fixed_by="--patience 3")
    assert not pace.is_too_long(1e6, update_s=0.2)


def test_a_validation_that_takes_half_of_what_all_may_is_broken_off() -> None:
    pace = ValidationPace(events=EVENTS)
    assert not pace.is_too_long(119.0, update_s=0.2)
    assert pace.is_too_long(121.0, update_s=0.2)
    choice = pace.break_off(100)
    assert evaluations(replace(EVENTS, rarer=choice.rarer)) == [6000]
    assert "the model is validated only after the last update" in str(choice.sentence)


@pytest.mark.parametrize("period", [Fraction(100), Fraction(75, 2), Fraction(1), Fraction(1, 3)])
@pytest.mark.parametrize("rarer", [(0, 0), (2, 0), (1, 4), (3, 2), (0, 1)])
def test_rarer_points_are_among_the_usual_ones(period: Fraction, rarer: tuple[int, int]) -> None:
    usual = replace(EVENTS, evaluate_updates=period, total_updates=950)
    events = replace(usual, rarer=RarerEvaluation(periods=rarer[0], times=rarer[1]))
    points = evaluations(events)
    assert set(points) <= set(evaluations(usual))
    assert points[-1] == 950
    update, met = 0, []
    while update < 950:
        update = events.next_event(update)
        met += [update] if events.is_evaluation(update) else []
    assert met == points
    if rarer == (0, 1):
        assert points == evaluations(usual)


def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other validation is affordable, whatever the clocks say."""
    monkeypatch.setattr(ValidationPace, "_affordable", lambda *_, **__: 2)
    monkeypatch.setattr(ValidationPace, "is_too_long", lambda *_, **__: False)


def validated(path: Path) -> list[int]:
    entries = read_metrics(RunDirectory(path).metrics)
    return [entry["update"] for entry in entries if entry["event"] == "validation"]


LONG = {**SMALL, "num_epochs": 7}


def test_a_run_chooses_once_says_so_and_goes_on_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costly(monkeypatch)
    shown = ShownWork()
    overrides = {**LONG, "output_dir": str(tmp_path / "run")}
    with signal_after(20):
        stopped = train_resolved(resolve_recipe(overrides=overrides), reporter=shown)
    assert stopped.status == "stopped"
    assert sum("--evaluate-every 6 validates every epoch" in line for line in shown.said) == 1
    kept = json.loads((tmp_path / "run" / "plan.json").read_text())["validation"]
    assert kept == {"periods": 2, "times": 2, "length": {"num_epochs": 7, "max_updates": None}}
    monkeypatch.undo()  # By the clock alone every epoch would be validated again.
    again = ShownWork()
    train_resolved(resolve_recipe(overrides=overrides), reporter=again)
    assert validated(tmp_path / "run") == [6, 12, 24, 36, 42]
    assert (
        sum(
            line.startswith("as chosen earlier in this run, the model is validated every 2 epochs (12")
            for line in again.said
        )
        == 1
    )


@pytest.mark.parametrize("option", [{"patience": 100}, {"stop_at": "loss=0"}, {"num_epochs": 8}])
def test_a_run_that_goes_on_for_another_end_validates_every_epoch_again(
    option: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_small: TrainSmall
) -> None:
    costly(monkeypatch)
    with signal_after(38):
        train_small(tmp_path / "run", num_epochs=9, lr_schedule="const")
    assert validated(tmp_path / "run") == [6, 12, 24, 36]
    monkeypatch.undo()
    train_small(tmp_path / "run", **{"num_epochs": 9, "lr_schedule": "const", **option})
    end = 48 if "num_epochs" in option else 54
    assert validated(tmp_path / "run") == [6, 12, 24, 36, *range(42, end + 1, 6)]


def test_a_choice_that_an_earlier_version_kept_without_a_length_still_counts(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.plan.write_text(json.dumps({"validation": {"periods": 2, "times": 0}}))
    recipe = resolve_recipe(overrides=SMALL).recipe
    assert kept_rarer(directory, recipe) == RarerEvaluation(periods=2, times=0)


def _costly_for_the_first_alone(group: ReplicaGroup, path: str) -> Any:
    """Trains on clocks that disagree: by the first rank's a validation takes an hour, by others' nothing."""
    see, lasts_s = ValidationPace.see, 3600.0 if group.is_first else 0.0

    def see_own(self: ValidationPace, update: int, _: float, *, update_s: float) -> Any:
        return see(self, update, lasts_s, update_s=update_s)

    with mock.patch.object(ValidationPace, "see", see_own):
        return train_rank(group, path, {"num_epochs": 6})


def test_two_ranks_choose_together_after_a_single_long_validation(
    tmp_path: Path, rank_pool: RankPool
) -> None:
    endings = rank_pool.run(_costly_for_the_first_alone, str(tmp_path / "run"), ranks=2)
    assert endings[0] == endings[1]
    points = validated(tmp_path / "run")
    assert len(points) == 2
    assert points[-1] == endings[0][1]


def test_the_weights_do_not_depend_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_small: TrainSmall
) -> None:
    train_small(tmp_path / "often", num_epochs=7, evaluate_every=6)
    costly(monkeypatch)
    train_small(tmp_path / "seldom", num_epochs=7)
    assert validated(tmp_path / "often") == [6, 12, 18, 24, 30, 36, 42]
    assert validated(tmp_path / "seldom") == [6, 12, 24, 36, 42]
    often, seldom = (final_files(tmp_path / name) for name in ("often", "seldom"))
    assert often["model.safetensors"] == seldom["model.safetensors"]
    losses = [np.load(tmp_path / name / "updates.npz")["loss"] for name in ("often", "seldom")]
    assert np.array_equal(*losses)


def test_what_the_user_says_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_small: TrainSmall
) -> None:
    costly(monkeypatch)
    train_small(tmp_path / "run", num_epochs=4, evaluate_every=6)
    assert validated(tmp_path / "run") == [6, 12, 18, 24]
    train_small(tmp_path / "patient", num_epochs=4, patience=100)
    assert validated(tmp_path / "patient") == [6, 12, 18, 24]


def test_a_first_validation_that_is_too_long_is_broken_off_and_the_last_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ValidationPace, "is_too_long", lambda self, *_, **__: self.is_open)
    measured: list[Evaluation] = []
    original = Evaluator.__call__

    def measure(self: Evaluator, **options: Any) -> Evaluation:
        measured.append(original(self, **options))
        return measured[-1]

    monkeypatch.setattr(Evaluator, "__call__", measure)
    shown = ShownWork()
    overrides = {**SMALL, "num_epochs": 4, "output_dir": str(tmp_path / "run")}
    result = train_resolved(resolve_recipe(overrides=overrides), reporter=shown)
    assert validated(tmp_path / "run") == [24]
    assert shown.names.count("validating") == 2
    assert shown.ended.count("validating") == 1
    assert len(measured) == 1
    assert result.metrics["best"]["update"] == 24


def test_folds_take_over_what_the_first_one_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import drivetrain

    costly(monkeypatch)
    chosen = []
    original = ValidationPace.see

    def see(self: ValidationPace, *arguments: Any, **options: Any) -> Any:
        chosen.append(original(self, *arguments, **options))
        return chosen[-1]

    monkeypatch.setattr(ValidationPace, "see", see)
    options = {key: value for key, value in SMALL.items() if key != "limit_validation_samples"}
    drivetrain.crossval(
        quiet=True, output_dir=str(tmp_path / "job"), **{**options, "folds": 3, "num_epochs": 5}
    )
    points = [validated(tmp_path / "job" / f"fold-{fold}") for fold in range(3)]
    assert sum(choice is not None for choice in chosen) == 1
    assert points[0] == points[1] == points[2]
    assert len(points[0]) == 4
