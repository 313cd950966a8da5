"""The suggestion names what took the time."""

from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.time_spent import suggest


def test_a_processor_that_others_use_is_named_unless_a_compiler_kept_it_idle() -> None:
    recipe = resolve_recipe(overrides={"dataset": "digits"}).recipe
    steps = {"step": 9.0, "data": 0.1, "other": 0.0}
    assert "something else is using it" in suggest(steps, recipe=recipe, processor_share=0.3)
    compiled = {**steps, "step": 1.0, "compilation": 30.0}
    assert "goes to compilation" in suggest(compiled, recipe=recipe, processor_share=0.3)
    assert "the training step itself" in suggest(steps, recipe=recipe, processor_share=0.95)
