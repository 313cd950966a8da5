"""The suggestion names what took the time."""

import pytest

from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.summary.time_spent import suggest

RECIPE = resolve_recipe(overrides={"dataset": "digits"}).recipe


def test_a_processor_that_others_use_is_named_unless_a_compiler_kept_it_idle() -> None:
    steps = {"step": 9.0, "data": 0.1, "other": 0.0}
    assert "something else is using it" in suggest(steps, recipe=RECIPE, processor_share=0.3)
    compiled = {**steps, "step": 1.0, "compilation": 30.0}
    assert "goes to compilation" in suggest(compiled, recipe=RECIPE, processor_share=0.3)
    assert "the training step itself" in suggest(steps, recipe=RECIPE, processor_share=0.95)


PARTS = (
    *("start-up", "data", "transfer", "validation", "checkpoint", "logging", "pictures"),
    *("probing", "compilation", "other"),
)


@pytest.mark.parametrize("largest", PARTS)
def test_the_largest_share_decides(largest: str) -> None:
    spent = {"step": 27.0, **dict.fromkeys(PARTS, 1.0), largest: 65.0}
    said = suggest(spent, recipe=RECIPE, processor_share=0.3)
    assert said.startswith(f"64% of the time goes to {largest}: ")
    assert "faster device" not in said


def test_a_large_part_beside_a_larger_step_is_named_with_it() -> None:
    said = suggest({"step": 60.0, "validation": 35.0, "other": 5.0}, recipe=RECIPE)
    assert said.startswith("60% of the time is the training step itself, 35% goes to validation: ")
    small = suggest({"step": 90.0, "validation": 5.0, "other": 5.0}, recipe=RECIPE)
    assert small == "90% of the time is the training step itself; only a faster device helps."
