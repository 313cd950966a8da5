"""The rows of a search agree with the plans of their recipes."""

from dataclasses import replace
from math import ceil
from typing import Any

import pytest
import torch

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.planner.costs import Link
from drivetrain.planner.estimate import estimate_recipe
from drivetrain.planner.search import resolve
from drivetrain.planner.search.asked import AskedSearch
from drivetrain.planner.search.resolve import search_recipe
from drivetrain.planner.search.result import SearchResult
from drivetrain.recipe.load import ResolvedRecipe
from tests.planner.plans import ROUND, resolved

# Fast inside a host of two devices, slow between the hosts, and slow to launch what is not captured.
TWO_HOSTS = replace(
    ROUND,
    hosts=2,
    flops={"float32": 1e12},
    host_launch_s=1e-3,
    links={
        "device": Link(bytes_per_s=1e12, latency_s=0.0),
        "host": Link(bytes_per_s=1e6, latency_s=1e-2),
    },
)


def _search(*, limit: int | None = None, **options: Any) -> tuple[SearchResult, ResolvedRecipe]:
    recipe = resolved(precision="32.32", gradient_accumulation_count=4, **options)
    asked = AskedSearch(stages=True, replicas=True, devices=None, memory_limit=limit)
    with Reporter(quiet=True) as reporter:
        return search_recipe(recipe, asked, described=TWO_HOSTS, reporter=reporter)


def test_the_first_row_is_the_plan_of_its_recipe() -> None:
    result, found = _search(ema=0.9)
    first = result.rows[0].found
    plan = estimate_recipe(found, device=TWO_HOSTS)
    assert first.seconds == plan.seconds_per_update
    assert first.peak_bytes == tuple(device.peak_bytes for device in plan.devices)
    assert all(row.is_exact for row in result.rows)
    # Only one device alone captures its updates, which the sum of layers in stages does not know.
    assert first.layout.devices == 1
    assert [row.found.seconds for row in result.rows] == sorted(row.found.seconds for row in result.rows)


def test_a_limit_counts_the_average_of_the_weights() -> None:
    peak = estimate_recipe(resolved(precision="32.32"), device=TWO_HOSTS).peak_bytes
    assert peak is not None
    limit = ceil(peak / 0.94)
    _, found = _search(limit=limit, ema=0.9)
    plan = estimate_recipe(found, device=TWO_HOSTS, memory_limit_bytes=limit)
    assert plan.fits
    assert all(device.parts["average"] > 0 for device in plan.devices)
    alone = estimate_recipe(resolved(precision="32.32", ema=0.9), device=TWO_HOSTS, memory_limit_bytes=limit)
    assert not alone.fits


def test_layers_that_do_not_fit_the_device_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("16 GB")

    monkeypatch.setattr(resolve, "model_times", short)
    asked = AskedSearch(stages=True, replicas=True, devices=2, memory_limit=None)
    with Reporter(quiet=True) as reporter:
        result, found = search_recipe(resolved(), asked, measure="on", reporter=reporter)
    (note,) = result.notes
    assert "could not be measured" in note
    assert "16 GB" in note
    assert note in found.notes
    assert "operations alone" in result.how_sure


def test_a_deterministic_run_is_not_laid_out_by_measured_times() -> None:
    recipe = resolved(precision="32.32", deterministic=True)
    asked = AskedSearch(stages=True, replicas=True, devices=2, memory_limit=None)
    with Reporter(quiet=True) as reporter:
        with pytest.raises(BadInputError, match="--measure off"):
            search_recipe(recipe, asked, reporter=reporter)
        result, _ = search_recipe(recipe, asked, measure="off", reporter=reporter)
    assert result.rows
