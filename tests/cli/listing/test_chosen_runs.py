"""Which runs are listed and in which order, by conditions and names of every kind."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.listing.chosen_runs import ListedRun, best_of_each_kind, chosen_runs, known_name
from drivetrain.core.errors import BadInputError
from drivetrain.store.directory import RunDirectory


def _run(name: str, *, metric: str = "dice", is_fold: bool = False, **values: Any) -> ListedRun:
    """A run with its best Dice, loss, seconds and seed."""
    metrics = {key: values[key] for key in ("dice", "loss", "accuracy") if key in values}
    row = {
        "run": name,
        "dataset": values.get("dataset", "cells"),
        "metric": metric,
        "best_validation": metrics.get(metric.removeprefix("mean ")),
        "elapsed_seconds": values.get("seconds"),
        "update": 10,
        "by_class": None,
    }
    recipe = {"model": values.get("model", "unet"), "seed": values.get("seed", 0), "augment": None}
    run = RunDirectory(Path(name))
    return ListedRun(run=run, row=row, metrics=metrics, recipe=recipe, is_fold=is_fold)


RUNS = [
    _run("a", dice=0.75, loss=0.5, seconds=30.0, seed=1),
    _run("b", dice=0.875, loss=0.75, seconds=9.0, model="resnet18"),
    _run("c", accuracy=0.5, metric="accuracy", loss=0.25, seconds=100.0, dataset="digits", seed=10),
]


def _names(**options: Any) -> str:
    return "".join(run.row["run"] for run in chosen_runs(RUNS, **options))


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (None, "abc"),
        ("dice", "bac"),
        ("loss", "cab"),
        ("time", "bac"),
        ("elapsed-seconds", "bac"),
        ("name", "abc"),
        ("seed", "bac"),
        ("--model", "bac"),
        ("best", "bac"),
    ],
)
def test_runs_are_sorted_the_best_first(sort: str | None, order: str) -> None:
    assert _names(sort=sort) == order


def test_the_other_way_round_runs_without_a_value_still_come_last() -> None:
    assert _names(sort="dice", reverse=True) == "abc"
    assert _names(sort="time", reverse=True) == "cab"
    assert _names(reverse=True) == "cba"


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (["model=unet"], "ac"),
        (["model=UNet"], "ac"),
        (["model!=unet"], "b"),
        (["dice>0.8"], "b"),
        (["dice >= 0.75"], "ab"),
        (["seed=01"], "a"),
        (["seed<10"], "ab"),
        (["seed<=10", "model=unet", "dataset!=cells"], "c"),
        (["elapsed_seconds>9"], "ac"),
        (["dice!=0.75"], "bc"),
        (["augment=none"], "abc"),
    ],
)
def test_conditions_are_about_columns_metrics_and_options(where: list[str], kept: str) -> None:
    assert _names(where=where) == kept


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"sort": "dise"},
            "--sort dise: dise is no column, metric or option of these runs. Did you mean dice",
        ),
        ({"where": ["modle=unet"]}, "Did you mean model"),
        ({"where": ["model"]}, "--where model is no condition; try --where model=unet"),
        ({"where": ["model>3"]}, "> compares numbers, and unet is none; try --where model=unet."),
        ({"where": ["dice>high"]}, "> compares numbers, and high is none"),
        ({"sort": "by_class"}, "--sort by_class"),
    ],
)
def test_mistakes_name_what_works(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError) as caught:
        _names(**options)
    assert words in str(caught.value)


def test_names_are_found_as_people_write_them() -> None:
    names = ("learning-rate", "--learning_rate", "images/s", "soft_dice")
    row = {**RUNS[0].row, "images_per_second": 1.0}
    runs = [ListedRun(run=RUNS[0].run, row=row, metrics=RUNS[0].metrics)]
    found = [known_name(name, runs, option="--sort") for name in names]
    assert found == ["learning_rate", "learning_rate", "images_per_second", "dice"]


def test_the_best_of_those_on_the_same_data_is_marked() -> None:
    assert best_of_each_kind(RUNS) == {1}
    assert best_of_each_kind(RUNS, metric="loss") == {0}
    assert best_of_each_kind(RUNS[1:]) == set()


def test_folds_are_never_the_best_and_means_are_compared_with_means() -> None:
    folds = [_run("fold-0", dice=0.99, is_fold=True), *RUNS[:2]]
    assert best_of_each_kind(folds) == {2}
    jobs = [*RUNS[:2], _run("job", dice=0.9, metric="mean dice"), _run("other", dice=0.8, metric="mean dice")]
    assert best_of_each_kind(jobs) == {1, 2}
