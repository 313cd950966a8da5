"""What `plan` says about time and memory, as JSON and on the screen."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from drivetrain.console.reporter import Reporter
from drivetrain.planner.planned import plan_with_estimate
from drivetrain.planner.render import in_words, print_estimate
from tests.planner.plans import ROUND, resolved


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _plan(how: dict[str, Any], **options: Any) -> dict[str, Any]:
    with Reporter(quiet=True) as reporter:
        return plan_with_estimate(resolved(**options), reporter=reporter, **how).plan


def _printed(plan: dict[str, Any]) -> str:
    shown = StringIO()
    print_estimate(plan, console=Console(width=200, file=shown))
    return shown.getvalue()


def test_a_pipeline_has_seconds_a_bubble_and_a_bottleneck() -> None:
    plan = _plan({"device": ROUND}, stages=2, gradient_accumulation_count=4, precision="32.32")
    assert plan["schedule"]["seconds_per_update"] == plan["seconds_per_update"]
    assert plan["images_per_second"] == 32 / plan["seconds_per_update"]
    assert plan["training_seconds"] == plan["total_updates"] * plan["seconds_per_update"]
    assert plan["schedule"]["bottleneck_stage"] in (0, 1)
    assert [device["device"] for device in plan["devices"]] == [0, 1]
    assert all(device["fits"] for device in plan["devices"])
    assert all(stage["forward_s"] > 0 for stage in plan["stages"])
    text = _printed(plan)
    assert "per update" in text
    assert f"wait for stage {plan['schedule']['bottleneck_stage']}" in text
    assert "estimated from the description: round" in text


def test_replicas_name_their_all_reduce() -> None:
    plan = _plan({"device": ROUND}, replicas=4, precision="32.32")
    reduced = plan["estimate"]["all_reduce"]
    assert 0 < reduced["share"] < 1
    assert "waits" in _printed(plan)


def test_without_measuring_no_seconds_are_invented() -> None:
    plan = _plan({"measure": "off"})
    assert not {"seconds_per_update", "images_per_second", "training_seconds"} & set(plan)
    assert plan["fits"] is True
    assert "note: --measure off" in _printed(plan)


def test_what_does_not_fit_comes_with_advice() -> None:
    plan = _plan({"measure": "off", "memory_limit_bytes": 10**6})
    assert plan["fits"] is False
    assert plan["advice"]["fits"] is False
    assert "does not fit: no single change" in _printed(plan)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0123, "12.3 ms"), (4.5, "4.5 s"), (720, "12 min"), (11520, "3.2 h"), (181440, "2.1 days")],
)
def test_durations_have_a_unit_that_suits_them(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
