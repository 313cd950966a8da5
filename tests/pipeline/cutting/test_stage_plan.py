"""How a recipe's model is cut, decided before anything is changed."""

from typing import Any

import pytest
import torch
from torch import nn

import drivetrain
from drivetrain.core.errors import BadInputError
from drivetrain.models.create import create_model
from drivetrain.pipeline.cutting import stage_plan
from drivetrain.pipeline.cutting.settings import StageSettings, stage_settings
from drivetrain.pipeline.cutting.stage_plan import StagePlan, check_cut, plan_stages
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.actions import Schedule
from drivetrain.schedules.by_name import build_schedule
from tests.schedules.tables import altered


def _recipe(**options: Any) -> Recipe:
    return resolve_recipe(overrides={"dataset": "digits", "precision": "32.32", **options}).recipe


def _plan(model: nn.Module | None = None, **options: Any) -> StagePlan | None:
    model = model or create_model("cifar_resnet8", channels=3, image_size=8, num_classes=10)
    return plan_stages(_recipe(**options), model, image_shape=(3, 8, 8), micro=2, accumulation=8)


def test_a_model_in_one_piece_has_no_plan() -> None:
    assert _plan() is None


def test_devices_stages_and_tables() -> None:
    plan = _plan(stages=4, device_mapping=[0, 1, 1, 0], pipeline_schedule="gpipe")
    assert plan is not None
    assert (plan.stages, plan.devices) == (4, 2)
    assert (plan.stages_on(0), plan.stages_on(1)) == ((0, 3), (1, 2))
    assert plan.schedule().micro_batches == 8
    assert plan.schedule(3).micro_batches == 3
    assert plan.schedule().name == "gpipe"
    assert plan.other_cut is None
    assert plan.firsts == plan.recommended
    assert {layer.name for layer in plan.traced.layers} >= set(plan.firsts)


def test_a_table_that_cannot_end_is_refused_where_stages_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a fault in a generator would be: device 1 does its last action first."""

    def crossed(*arguments: Any, **options: Any) -> Schedule:
        return altered(build_schedule(*arguments, **options), 1, lambda row: row.insert(0, row.pop()))

    assert _plan(stages=2) is not None
    monkeypatch.setattr(stage_plan, "build_schedule", crossed)
    with pytest.raises(BadInputError) as refused:
        _plan(stages=2)
    assert str(refused.value) == (
        "--pipeline-schedule 1f1b cannot run with --device-mapping 0 1: Device 1 waits forever at B7@1: F7@1 "
        "does not come before it. --pipeline-schedule sequential works."
    )


def test_what_is_proved_are_the_skips_of_the_model_too() -> None:
    model = create_model("unet_same", channels=3, image_size=16, num_classes=2, depth=2)
    plan = plan_stages(
        _recipe(stages=4, dataset="synthetic-em", model="unet_same", channels=3, image_size=16),
        model,
        image_shape=(3, 16, 16),
        micro=1,
        accumulation=4,
    )
    assert plan is not None
    assert plan.edges() == plan.cut().edges
    assert any(edge.consumer > edge.producer + 1 for edge in plan.edges())


def test_the_recommended_cut_is_told_beside_another() -> None:
    plan = _plan(pipeline_splits=["conv2_block1_add"])
    assert plan is not None
    assert plan.other_cut == f"--pipeline-splits {plan.recommended[0]}"
    again = _plan(pipeline_splits=list(plan.recommended))
    assert again is not None
    assert again.other_cut is None


def test_the_same_recipe_is_cut_the_same_way() -> None:
    plans = [_plan(stages=3, split_by=by) for by in ("cost", "cost", "parameters")]
    assert all(plan is not None for plan in plans)
    cuts = [plan.stage_of for plan in plans if plan is not None]
    assert cuts[0] == cuts[1]
    assert cuts[0] != cuts[2]


def test_what_is_measured_is_chosen_by_whoever_decides_for_all() -> None:
    model = create_model("cifar_resnet8", channels=3, image_size=8, num_classes=10)
    asked: list[tuple[str, ...]] = []

    def choose(measure: Any) -> tuple[str, ...]:
        asked.append(measure())
        return ("conv3_block1_add",)

    recipe = _recipe(stages=2, split_by="time")
    plan = plan_stages(recipe, model, image_shape=(3, 8, 8), micro=2, accumulation=8, choose=choose)
    assert plan is not None
    assert plan.firsts == ("conv3_block1_add",)
    assert len(asked) == 1


class _Marked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with drivetrain.stage(0):
            self.first = nn.Conv2d(3, 4, 3)
        with drivetrain.stage(1):
            self.second = nn.Conv2d(4, 10, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.second(self.first(images)).mean((2, 3))
        return logits


def test_marks_in_the_model_are_a_cut() -> None:
    plan = _plan(_Marked(), stages=2)
    assert plan is not None
    assert plan.firsts == ("second",)
    assert plan.other_cut is None
    with pytest.raises(
        BadInputError, match=r"--stages 3 does not match the model.*marked for 2 stages; --stages 2 works"
    ):
        _plan(_Marked(), stages=3)


def test_planning_leaves_the_model_as_it_was() -> None:
    model = create_model("cifar_resnet8", channels=3, image_size=8, num_classes=10)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plan = _plan(model, stages=4)
    assert plan is not None
    plan.cut()
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    saved = [name for stage in plan.cut().stages for name in stage.state_dict()]
    assert sorted(saved) == sorted(before)


def test_blocks_of_a_model_in_one_piece_keep_their_inputs_alone() -> None:
    plan = _plan(recomputation=True)
    assert plan is not None
    assert plan.devices == 1
    assert plan.stages > 2
    assert plan.schedule_name == "sequential"
    assert all(settings.recomputes for settings in plan.settings)


def _settings(live: tuple[int, ...], **options: Any) -> tuple[StageSettings, ...]:
    return stage_settings(_recipe(stages=len(live), **options), live=live)


def test_single_stages_do_things_their_own_way() -> None:
    options = [{"stage": 1, "recomputation": True, "compile": True, "precision": "16.32", "offload": True}]
    first, second = _settings((2, 1), stage_options=options)
    assert first == StageSettings(recomputes=False, precision="32.32", compiles=False, offloads=False)
    assert second == StageSettings(recomputes=True, precision="16.32", compiles=True, offloads=True)
    kept = _settings((2, 1), recomputation=True, stage_options=[{"stage": 0, "recomputation": False}])
    assert [stage.recomputes for stage in kept] == [False, True]


def test_a_balanced_run_recomputes_where_several_micro_batches_are_held() -> None:
    assert [stage.recomputes for stage in _settings((3, 2, 1), optimise_for="balanced")] == [
        True,
        True,
        False,
    ]
    assert [stage.recomputes for stage in _settings((3, 2, 1), optimise_for="speed")] == [False] * 3
    memory = _settings((3, 2, 1), optimise_for="memory")
    assert all(stage.recomputes and stage.offloads for stage in memory)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pipeline_splits": ["no_such_layer"]}, "no_such_layer"),
        ({"stages": 99}, "--stages 99"),
        ({"pipeline_splits": ["conv4_block1_add", "conv2_block1_add"]}, "conv2_block1_add"),
    ],
)
def test_cuts_that_cannot_be_made_are_refused_early(options: dict[str, Any], words: str) -> None:
    model = create_model("cifar_resnet8", channels=3, image_size=8, num_classes=10)
    check_cut(_recipe(stages=3), model, image_shape=(3, 8, 8))
    check_cut(_recipe(pipeline_splits=["conv2_block1_add"]), model, image_shape=(3, 8, 8))
    with pytest.raises(BadInputError, match=words):
        check_cut(_recipe(**options), model, image_shape=(3, 8, 8))
    with pytest.raises(BadInputError, match=words):
        _plan(model, **options)
