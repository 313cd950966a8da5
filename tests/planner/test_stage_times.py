"""The times of layers, added up to those of stages."""

from typing import Any

import pytest

from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.plan.training_plan import build_outlined_plan
from drivetrain.planner.costs import LayerTime, ModelTimes
from drivetrain.planner.stage_times import times_of_stages
from drivetrain.recipe.load import resolve_recipe
from tests.plan.staged_runs import MODELS


def _outline(**options: Any) -> RunOutline:
    given = {**MODELS["cifar_resnet8"], "device": "cpu", **options}
    outline = build_outlined_plan(resolve_recipe(overrides=given), lr_at=(), needs_outline=True).outline
    assert outline is not None
    return outline


def _times(layers: int) -> ModelTimes:
    made = [
        LayerTime(name=str(index), forward_s=index + 1, backward_s=10 * (index + 1))
        for index in range(layers)
    ]
    return ModelTimes(layers=made, micro_batch_size=2, update_s=0.5, source="measured")


def test_each_stage_has_the_time_of_its_layers() -> None:
    outline = _outline(stages=2)
    assert outline.plan is not None
    stage_of = outline.plan.cut().stage_of
    found = times_of_stages(_times(len(stage_of)), outline)
    first = sum(index + 1 for index, stage in enumerate(stage_of) if stage == 0)
    total = sum(range(1, len(stage_of) + 1))
    assert found.forward == (first, total - first)
    assert found.backward == (10 * first, 10 * (total - first))
    assert (found.update, found.unit, found.source) == (0.5, "s", "measured")


def test_a_stage_that_recomputes_runs_its_forward_pass_again() -> None:
    outline = _outline(stages=2, stage_options=[{"stage": 1, "recomputation": True}])
    assert outline.plan is not None
    plain = times_of_stages(_times(len(outline.plan.stage_of)), _outline(stages=2))
    again = times_of_stages(_times(len(outline.plan.stage_of)), outline)
    assert again.backward == (plain.backward[0], plain.backward[1] + plain.forward[1])


def test_a_model_in_one_piece_is_one_stage() -> None:
    found = times_of_stages(_times(3), _outline())
    assert (found.forward, found.backward) == ((6,), (60,))


def test_times_of_another_model_are_no_times_of_this() -> None:
    with pytest.raises(ValueError, match="shorter"):
        times_of_stages(_times(1), _outline(stages=2))
