"""Notes on fields: one field with notes is in every list that is made from them."""

from collections.abc import Callable, Collection
from typing import Annotated, Any

import pytest
from pydantic import Field

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.checks.all_rules import check_recipe
from drivetrain.recipe.checks.task import check_task_options
from drivetrain.recipe.fields import (
    alternatives,
    default_values,
    defaults_with,
    fields_of_stages,
    fields_of_task,
    fields_of_validation,
    fields_with,
    idle_conditions,
    idle_fields,
    marked,
    without_augmentation,
)
from drivetrain.recipe.given import Given
from drivetrain.recipe.idle import idle_warnings
from drivetrain.recipe.messages import COMMAND_LINE
from drivetrain.recipe.notes import (
    AlternativeFor,
    Fact,
    FieldNote,
    IdleIn,
    IdleWith,
    Measuring,
    NeedsStages,
    OfAugmentation,
    OfTask,
    UsedIn,
    check_notes,
    idle,
    note_of,
)
from drivetrain.recipe.schema import Recipe

NEW = "blur"
EVERYWHERE = ~Measuring(0)


class WithBlur(Recipe):
    """The recipe with a field that has every mark that says something of a list."""

    blur: Annotated[
        int,
        FieldNote(
            "data",
            (
                *Fact,
                OfTask("segmentation"),
                NeedsStages(),
                idle(validation=False),
                IdleIn(EVERYWHERE),
                OfAugmentation(off=0),
                AlternativeFor("logs"),
            ),
        ),
    ] = Field(default=3, description="blur of images")


class WithUsedBlur(Recipe):
    """The recipe with a field that every measurement uses, in a group that none does."""

    blur: Annotated[int, FieldNote("run", (UsedIn(EVERYWHERE),))] = Field(default=3, description="blur")


def _idle_names(*, schema: type[Recipe]) -> list[str]:
    return [field for field, _ in idle_conditions(schema=schema)]


def _alternatives_of_logs(*, schema: type[Recipe]) -> tuple[str, ...]:
    return next(group for group in alternatives(schema=schema) if "log_every" in group)


LISTS: list[Callable[[type[Recipe]], Collection[str]]] = [
    *(lambda schema, fact=fact: fields_with(fact, schema=schema) for fact in Fact),
    *(lambda schema, where=where: idle_fields(where, schema=schema) for where in Measuring),
    lambda schema: defaults_with(Fact.PACE, schema=schema),
    lambda schema: fields_of_task("segmentation", schema=schema),
    lambda schema: fields_of_stages(schema=schema),
    lambda schema: fields_of_validation(schema=schema),
    lambda schema: without_augmentation(schema=schema),
    lambda schema: _idle_names(schema=schema),
    lambda schema: _alternatives_of_logs(schema=schema),
]


@pytest.mark.parametrize("make_list", LISTS)
def test_a_new_field_is_in_every_list(make_list: Callable[[type[Recipe]], Collection[str]]) -> None:
    assert set(make_list(WithBlur)) - set(make_list(Recipe)) == {NEW}


@pytest.mark.parametrize("make_list", LISTS)
def test_a_new_field_without_marks_is_in_no_other_list(
    make_list: Callable[[type[Recipe]], Collection[str]],
) -> None:
    assert set(make_list(WithUsedBlur)) == set(make_list(Recipe))


def test_values_come_with_the_field() -> None:
    assert without_augmentation(schema=WithBlur)[NEW] == 0
    assert defaults_with(Fact.PACE, schema=WithBlur)[NEW] == 3
    assert (NEW, IdleWith("validation", False)) in idle_conditions(schema=WithBlur)


@pytest.fixture
def _with_blur(monkeypatch: pytest.MonkeyPatch) -> None:
    # The defaults are those of the recipe as it is, and kept from the first call on.
    default_values()
    monkeypatch.setitem(Recipe.model_fields, NEW, WithBlur.model_fields[NEW])


def _typed(**values: Any) -> Given:
    return Given(WithBlur(**values), dict.fromkeys(values, COMMAND_LINE))


@pytest.mark.usefixtures("_with_blur")
@pytest.mark.parametrize("measurement", list(Measuring))
def test_a_measurement_says_that_a_new_field_does_nothing(measurement: Measuring) -> None:
    said = idle_warnings(_typed(blur=5), command="bench", measurement=measurement)
    assert said == ["--blur 5 has no effect on bench."]


@pytest.mark.usefixtures("_with_blur")
def test_the_rule_of_tasks_knows_a_new_field() -> None:
    with pytest.raises(BadInputError, match="--blur 5 is for segmentation, and this is classification"):
        check_task_options(_typed(blur=5), task="classification")


@pytest.mark.usefixtures("_with_blur")
@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"stages": 2, "validation": False}, "--blur 5 has no effect with --validation False"),
        ({}, "--blur 5 has no effect without pipeline stages"),
    ],
)
def test_rules_of_idle_options_know_a_new_field(values: dict[str, Any], sentence: str) -> None:
    given = _typed(blur=5, model="unet_same", dataset="synthetic-em", **values)
    with pytest.raises(BadInputError, match=sentence):
        check_recipe(given.recipe, given.origins)


@pytest.mark.usefixtures("_with_blur")
def test_a_new_field_is_welcome_where_it_does_something() -> None:
    given = _typed(blur=5, model="unet_same", dataset="synthetic-em", stages=2)
    assert check_recipe(given.recipe, given.origins) == []


def test_messages_come_by_urgency_and_then_in_the_order_of_the_schema() -> None:
    assert fields_of_stages() == ("pipeline_schedule", "split_by", "device_mapping")
    assert fields_of_task("segmentation")[-2:] == ("border_weight", "border_sigma")
    assert fields_of_validation()[:4] == ("validation_replicas", "evaluate_every", "stop_at", "patience")
    assert [field for field, _ in idle_conditions()][:3] == [
        "keep_checkpoints",
        "checkpoint_every",
        "clean_dir",
    ]


def test_a_note_that_names_no_field_is_refused() -> None:
    class Misspelt(Recipe):
        blur: Annotated[int, FieldNote("data", (idle(validatoin=False),))] = 0

    with pytest.raises(TypeError, match="note on recipe field blur names validatoin, which is not a field"):
        check_notes(Misspelt.model_fields)
    check_notes(WithBlur.model_fields)


def test_a_field_without_a_note_is_refused() -> None:
    class Bare(Recipe):
        blur: int = 0

    with pytest.raises(TypeError, match="recipe field blur has no note"):
        check_notes(Bare.model_fields)


def test_a_field_cannot_be_idle_and_used_at_once() -> None:
    class Torn(Recipe):
        blur: Annotated[
            int,
            FieldNote("data", (IdleIn(Measuring.VERIFY), UsedIn(Measuring.VERIFY | Measuring.DELIVERY))),
        ] = 0

    with pytest.raises(TypeError, match="as idle and as used in one measurement"):
        check_notes(Torn.model_fields)


def test_a_condition_names_one_field() -> None:
    with pytest.raises(ValueError, match="unpack"):
        idle(validation=False, checkpoints=False)


@pytest.mark.parametrize(("field", "mark"), marked(IdleWith))
def test_the_value_of_a_condition_is_one_that_its_cause_may_have(field: str, mark: IdleWith) -> None:
    assert field != mark.cause
    assert getattr(Recipe.model_validate({mark.cause: mark.value}), mark.cause) == mark.value


@pytest.mark.parametrize(("field", "off"), without_augmentation().items())
def test_an_augmentation_can_be_off_and_is_work(field: str, off: object) -> None:
    assert getattr(Recipe.model_validate({field: off}), field) == off
    assert field in fields_with(Fact.WORK)
    assert Measuring.DEVICE_NOISE in note_of(Recipe.model_fields[field]).idle_in
