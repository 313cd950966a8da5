"""An update is measured in the real program once, and its time is kept for the same work alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drivetrain.console.reporter import Reporter
from drivetrain.planner.devices.target import find_target
from drivetrain.planner.estimate import Measure, estimate_recipe
from drivetrain.planner.measuring import measured_update
from drivetrain.planner.measuring.measured_times import largest_share, measured_times
from drivetrain.planner.measuring.measured_update import (
    MeasuredUpdate,
    known_update,
    one_process,
    timing_marks,
)
from drivetrain.planner.measuring.worth_measuring import why_not_measured
from drivetrain.recipe.layout import batch_of, devices_per_replica, rank_count, stage_count
from tests.planner.plans import planned, resolved


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_stages_are_measured_in_the_real_program_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    run = planned(stages=2, gradient_accumulation_count=2, limit_train_samples=64)
    target = find_target(run.recipe)
    with Reporter(quiet=True) as reporter:
        times = measured_times(run, target=target, reporter=reporter)
        update = known_update(run, target=target)
        assert update is not None
        assert update.micro_batches == 2
        assert 0 < update.optimiser_s < update.update_s
        assert times.layers is not None
        assert run.outline.plan is not None
        assert [layer.name for layer in times.layers.layers] == [
            layer.name for layer in run.outline.plan.traced.layers
        ]
        micro_batch_s = times.layers.forward_s + times.layers.backward_s
        assert 2 * micro_batch_s + update.optimiser_s == pytest.approx(update.update_s, rel=1e-9)
        assert times.update_s == largest_share(run) * update.optimiser_s

        def refused(*_: Any, **__: Any) -> MeasuredUpdate:
            raise AssertionError("measured again")

        monkeypatch.setattr(measured_update, "_measured", refused)
        kept = measured_times(run, target=target, reporter=reporter)
        assert kept.notes == ("Measured earlier: --measure on measures anew.",)
        assert replace(kept, notes=()) == times
        other = planned(stages=2, gradient_accumulation_count=4, limit_train_samples=64)
        with pytest.raises(AssertionError, match="measured again"):
            measured_times(other, target=target, reporter=reporter)


def test_each_device_steps_only_its_own_part() -> None:
    run = planned(stages=2)
    plan = run.outline.plan
    assert plan is not None
    parts = [sum(weight.numel() for weight in stage.parameters()) for stage in plan.cut().stages]
    assert sum(parts) == run.totals.trainable
    assert largest_share(run) == max(parts) / sum(parts) < 1.0
    assert largest_share(planned(stages=2, device_mapping=(0, 0))) == 1.0


def test_measure_on_measures_anew_and_replaces_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter((1.0, 2.0))

    def measured(*_: Any, **__: Any) -> MeasuredUpdate:
        return MeasuredUpdate(update_s=next(found), optimiser_s=0.5, micro_batches=1)

    monkeypatch.setattr(measured_update, "_measured", measured)
    ways: tuple[Measure, ...] = ("auto", "auto", "on", "auto")
    estimates = [estimate_recipe(resolved(), measure=way) for way in ways]
    assert [each.seconds_per_update for each in estimates] == [1.0, 1.0, 2.0, 2.0]
    earlier = ["Measured earlier" in " ".join(each.notes) for each in estimates]
    assert earlier == [False, True, False, True]


def test_a_replica_is_measured_in_one_process() -> None:
    recipe = resolved(
        replicas=2, stages=2, gradient_accumulation_count=3, pipeline_schedule="gpipe", device="cpu"
    ).recipe
    alone = one_process(recipe)
    assert (rank_count(alone), devices_per_replica(alone), stage_count(alone)) == (1, 1, 2)
    assert batch_of(alone).accumulation == batch_of(recipe).accumulation
    assert alone.capture == "off"
    assert one_process(resolved().recipe).capture == "auto"


def test_what_changes_the_time_is_a_mark() -> None:
    target = find_target(planned().recipe)
    assert target.here is not None
    found = {}
    for options in (
        {},
        {"micro_batch_size": 4},
        {"precision": "16.32"},
        {"compile": "on"},
        {"optimizer": "adam"},
        {"gradient_accumulation_count": 2},
    ):
        run = planned(**options)
        marks = timing_marks(run, one_process(run.recipe), device=target.here)
        found[str(options)] = str(sorted(marks.items()))
    assert len(set(found.values())) == len(found)
    run = planned(seed=3, num_epochs=2, output_dir="elsewhere")
    same = timing_marks(run, one_process(run.recipe), device=target.here)
    assert str(sorted(same.items())) == found["{}"]


def test_auto_leaves_out_what_takes_long() -> None:
    small = planned()
    target = find_target(small.recipe)
    assert known_update(small, target=target) is None
    assert why_not_measured(small, target=target, fits=True) is None
    assert "does not fit" in str(why_not_measured(small, target=target, fits=False))
    compiled = planned(compile="on")
    assert "--measure on" in str(why_not_measured(compiled, target=target, fits=True))
    big = planned(model="resnet50", dataset="synthetic", dataset_size=64, image_size=64, micro_batch_size=64)
    assert "takes long" in str(why_not_measured(big, target=target, fits=True))
