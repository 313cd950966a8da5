"""The problem of a recipe, and a layout as its options."""

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.planner.search.from_recipe import problem_from_recipe
from drivetrain.planner.search.layout import Layout
from drivetrain.planner.search.options import layout_fields, option_line
from drivetrain.planner.search.subject import Subject, subject_of
from drivetrain.recipe.load import resolve_recipe


def _subject(**options: object) -> Subject:
    values = {"model": "toy_model", "dataset": "synthetic", "dataset_size": 64, "micro_batch_size": 4}
    return subject_of(resolve_recipe(overrides={**values, "device": "cpu", **options}))


def test_a_schedule_that_cannot_be_compiled_is_refused() -> None:
    subject = _subject(compile="on")
    with pytest.raises(BadInputError, match="zero-bubble is not possible with --compile on"):
        problem_from_recipe(subject, devices=2, schedule="zero-bubble")
    assert "zero-bubble" not in problem_from_recipe(subject, devices=2).schedules


def test_the_connection_to_the_host_and_typed_fields_are_kept() -> None:
    problem = problem_from_recipe(
        _subject(), devices=2, host_bytes_per_s=3e9, typed=frozenset({"micro_batch_size"})
    )
    assert (problem.host_bytes_per_s, problem.typed_micro, problem.typed_group) == (3e9, 4, None)


def test_options_keep_the_way_in_which_the_batch_was_given() -> None:
    layout = Layout(
        firsts=(),
        device_of=(0,),
        schedule="sequential",
        replicas=2,
        micro=4,
        accumulation=3,
        group=1,
        recomputes=(False,),
        offloads=False,
    )
    by_count = layout_fields(_subject(gradient_accumulation_count=6).recipe, layout, names=())
    assert option_line(by_count) == "--replicas 2 --gradient-accumulation-count 3"
    by_batch = layout_fields(_subject(global_batch_size=24).recipe, layout, names=())
    assert option_line(by_batch) == "--replicas 2 --global-batch-size 24"
