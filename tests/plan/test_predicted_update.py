"""An update before it runs, against what the plan of the same recipe says."""

from itertools import pairwise
from typing import Any
from unittest import mock

import pytest

from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.plan import predicted_update
from drivetrain.plan.predicted_update import predict_update
from drivetrain.plan.stage_report import RunMemory, memory_of_run
from drivetrain.plan.training_plan import look_into, plan_of_run
from drivetrain.recipe.load import resolve_recipe
from drivetrain.schedules.pass_times import PassTimes
from tests.plan.staged_runs import MODELS

LAYOUTS: dict[str, dict[str, Any]] = {
    "one piece": {},
    "recomputed": {"recomputation": True},
    "two devices": {"stages": 2},
    "adam on two devices": {"stages": 2, "optimizer": "adam", "optimizer_params": {}},
    "zero-bubble": {"stages": 2, "pipeline_schedule": "zero-bubble"},
    "two stages on one device": {"stages": 2, "device_mapping": (0, 0), "pipeline_schedule": "gpipe"},
}


def _planned(**options: Any) -> tuple[dict[str, Any], RunOutline]:
    given = {**MODELS["cifar_resnet8"], "device": "cpu", "gradient_accumulation_count": 4, **options}
    planned = look_into(resolve_recipe(overrides=given))
    return plan_of_run(planned, lr_at=()), planned.outline


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_highest_memory_of_the_course_is_the_peak_of_the_plan(layout: str) -> None:
    plan, outline = _planned(**LAYOUTS[layout])
    _, course = predict_update(outline).course()
    for device in plan["memory"]["devices"]:
        steps = [step for step in course.memory if step.device == device["device"]]
        assert max(step.held_bytes for step in steps) == device["peak"]
        lasting = device["parameters"] + device["gradients"] + device["optimiser_states"]
        assert min(step.held_bytes for step in steps) == lasting + device.get("checkpoint", 0)
        assert course.lasting_bytes[device["device"]] == lasting + device.get("checkpoint", 0)
        # Every moment of the update is covered once.
        assert steps[0].start_s == 0.0
        assert all(before.end_s == after.start_s for before, after in pairwise(steps))


def test_times_by_flops_give_the_bubble_of_the_plan() -> None:
    plan, outline = _planned(stages=2)
    predicted = predict_update(outline)
    found, course = predicted.course()
    assert found.bubble == pytest.approx(plan["schedule"]["bubble"])
    assert predicted.times.unit == "forward passes"
    assert {span.what for span in course.spans} == {"forward", "backward"}
    assert len(course.spans) == 2 * 2 * 4


def test_a_model_in_one_piece_takes_its_micro_batches_in_turn() -> None:
    found, course = predict_update(_planned()[1]).course()
    assert found.seconds_per_update == pytest.approx(4 * 3)
    assert found.bubble == 0
    assert len(course.spans) == 2 * 4


def test_given_times_take_the_place_of_flops() -> None:
    times = PassTimes(forward=(1.0, 2.0), backward=(2.0, 4.0), update=0.5, unit="s", source="measured")
    _, outline = _planned(stages=2, pipeline_schedule="gpipe", gradient_accumulation_count=1)
    found, course = predict_update(outline, times=times).course()
    assert found.seconds_per_update == 9.0
    assert max(span.end_s for span in course.spans) == 9.5
    assert max(step.end_s for step in course.memory) == 9.5


def test_memory_that_is_known_is_not_predicted_again() -> None:
    _, outline = _planned(stages=2)
    known = memory_of_run(outline).prediction
    assert known is not None
    expected = predict_update(outline)
    with mock.patch.object(predicted_update, "memory_of_run", side_effect=AssertionError):
        assert predict_update(outline, memory=known) == expected


def test_a_model_whose_memory_cannot_be_predicted_still_has_its_timeline() -> None:
    _, outline = _planned(stages=2)
    unknown = RunMemory(prediction=None, compute_dtypes=(), failure="needs values")
    with mock.patch.object(predicted_update, "memory_of_run", return_value=unknown):
        predicted = predict_update(outline)
    assert predicted.problem is not None
    assert "needs values" in predicted.problem
    _, course = predicted.course()
    assert not course.memory
    assert course.spans
