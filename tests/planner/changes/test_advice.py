"""The cheapest change that fits, told as an option line; what it costs and what it changes is said."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from drivetrain.console.reporter import Reporter
from drivetrain.plan.stage_report import memory_of_run
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.changes.advice import Advice, Change, Figures, candidates, cheapest_change
from drivetrain.planner.changes.advise import advise
from drivetrain.planner.devices.target import Target
from drivetrain.planner.estimate import estimate_run
from drivetrain.recipe.layout import batch_of
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from tests.planner.plans import ROUND, SMALL, planned, resolved

USUAL = Figures(peak_bytes=100, seconds_per_update=1.0, source="described")


def _options(recipe: Recipe, **how: Any) -> list[list[str]]:
    settings = {"normalises": True, "on_cpu": False, "most_stages": 4} | how
    return [[change.options for change in changes] for changes in candidates(recipe, **settings)]


def test_all_kinds_of_change_are_tried() -> None:
    assert _options(resolved(precision="32.32").recipe) == [
        [
            "--micro-batch-size 4 --gradient-accumulation-count 2",
            "--micro-batch-size 2 --gradient-accumulation-count 4",
            "--micro-batch-size 1 --gradient-accumulation-count 8",
        ],
        ["--recomputation True"],
        ["--optimizer-state-offloading True"],
        ["--precision 16.32"],
        ["--stages 2", "--stages 4"],
    ]


def test_what_the_recipe_does_already_is_not_proposed() -> None:
    recipe = resolved(
        recomputation=True, optimizer_state_offloading=True, precision="16.32", micro_batch_size=1, stages=3
    ).recipe
    assert _options(recipe) == [[], []]
    assert _options(resolved().recipe, on_cpu=True, most_stages=1)[-1] == []


def test_batch_norm_is_warned_of() -> None:
    with_norm = next(iter(candidates(resolved().recipe, normalises=True, on_cpu=True, most_stages=1)))
    assert "normalises 4 samples together instead of 8" in str(with_norm[0].warning)
    without = next(iter(candidates(resolved().recipe, normalises=False, on_cpu=True, most_stages=1)))
    assert without[0].warning is None


def test_a_proposed_batch_keeps_the_global_batch() -> None:
    for options in ({}, {"gradient_accumulation_count": 4}, {"replicas": 2}, {"global_batch_size": 32}):
        recipe = resolved(**options).recipe
        for change in next(iter(candidates(recipe, normalises=True, on_cpu=True, most_stages=1))):
            words = change.options.replace("--", "").replace("-", "_").split()
            typed = dict(zip(words[::2], words[1::2], strict=True))
            changed = resolve_recipe(overrides={**SMALL, **options, **typed}).recipe
            assert batch_of(changed).global_batch == batch_of(recipe).global_batch
            assert batch_of(changed) == batch_of(recipe.model_copy(update=change.fields))


def _chosen(figures: dict[str, Figures], choices: Sequence[Sequence[Change]]) -> Advice | None:
    def figures_of(run: PlannedRun) -> Figures | None:
        return figures.get(str(run.recipe.seed))

    return cheapest_change(resolved(), choices, available_bytes=50, usual=USUAL, figures_of=figures_of)


def _change(seed: int, warning: str | None = None) -> Change:
    return Change(options=f"--seed {seed}", fields={"seed": seed}, warning=warning)


def _figures(peak: int, seconds: float | None) -> Figures:
    return Figures(peak_bytes=peak, seconds_per_update=seconds, source="described")


def test_the_cheapest_that_fits_is_chosen() -> None:
    figures = {"1": _figures(60, 1.0), "2": _figures(40, 1.5), "3": _figures(30, 1.2), "4": _figures(10, 2.0)}
    found = _chosen(figures, [[_change(1), _change(2), _change(4)], [_change(3)]])
    assert found is not None
    assert (found.change.options, found.fits, found.price) == ("--seed 3", True, 1.2 / 1.0 - 1)
    assert [other.change.options for other in found.others] == ["--seed 2"]
    assert "--seed 3 makes it fit" in found.sentence
    assert "20 % longer" in found.sentence


def test_what_keeps_the_results_is_named_beside_what_does_not() -> None:
    figures = {"1": _figures(40, 1.0), "2": _figures(40, 1.3)}
    found = _chosen(figures, [[_change(1, "another result")], [_change(2)]])
    assert found is not None
    assert found.change.options == "--seed 1"
    assert "another result; --seed 2 keeps the results" in found.sentence


def test_the_smallest_is_named_if_none_fits() -> None:
    figures = {"1": _figures(80, 1.0), "2": _figures(60, 1.5)}
    found = _chosen(figures, [[_change(1), _change(2)]])
    assert found is not None
    assert (found.change.options, found.fits) == ("--seed 2", False)
    assert "no single change makes it fit; the smallest is --seed 2" in found.sentence
    assert _chosen({}, [[_change(1)]]) is None


def test_the_proposed_change_fits_when_it_is_planned() -> None:
    run = planned(device="cuda", precision="32.32", micro_batch_size=64)
    target = Target(name="round", is_cpu=False, memory_bytes=10**9, described=ROUND)
    with Reporter(quiet=True) as reporter:
        whole = estimate_run(run, memory_of_run(run.outline), target=target, measure="off", reporter=reporter)
    assert whole.peak_bytes is not None
    limit = whole.peak_bytes - 1
    limited = replace(whole, target=replace(target, memory_bytes=limit))
    found = advise(run, limited)
    assert found is not None
    assert found.fits
    assert found.peak_bytes <= limit
