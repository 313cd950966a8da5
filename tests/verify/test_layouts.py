"""How layouts are written."""

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.cutting.settings import stage_settings
from drivetrain.recipe.layout import device_of_stage, stage_count
from drivetrain.recipe.schema import Recipe
from drivetrain.verify.cuts import Cut, Layout
from drivetrain.verify.layouts import parse_cuts


def test_cuts_are_read_as_they_are_named() -> None:
    text = "replicas=2,accumulation=2;replicas=4,group=2;replicas=1"
    cuts = parse_cuts(f" {text} ; ")
    assert cuts == (Cut(replicas=2, accumulation=2), Cut(replicas=4, group=2), Cut())
    assert ";".join(cut.name for cut in cuts) == text
    assert parse_cuts("") == ()


@pytest.mark.parametrize(
    ("text", "cut", "ranks"),
    [
        ("stages=2,schedule=gpipe", Cut(stages=2, schedule="gpipe"), 2),
        ("replicas=2,stages=3,schedule=1f1b", Cut(replicas=2, stages=3), 6),
        (
            "stages=4,split_by=parameters,schedule=grouped,mapping=0 1 1 0,recomputation=true",
            Cut(
                stages=4, split_by="parameters", schedule="grouped", mapping=(0, 1, 1, 0), recomputation=True
            ),
            2,
        ),
        (
            "splits=a b,schedule=1f1b,recomputation=0 2,offloading=1,processes=1",
            Cut(stages=3, splits=("a", "b"), recomputation=(0, 2), offloading=(1,), processes=1),
            1,
        ),
        ("recomputation=true,offloading=true", Cut(recomputation=True, offloading=True), 1),
    ],
)
def test_cut_models_are_read_as_they_are_named(text: str, cut: Cut, ranks: int) -> None:
    assert parse_cuts(text) == (cut,)
    assert (cut.name, cut.ranks) == (text, ranks)


def test_another_system_s_name_of_a_schedule_is_understood() -> None:
    assert parse_cuts("stages=3,schedule=Interleaved") == parse_cuts("stages=3,schedule=1f1b")


def test_stages_become_the_fields_of_a_recipe_that_reads_them_alike() -> None:
    cut = Cut(stages=3, splits=("a", "b"), mapping=(0, 1, 0), recomputation=(0, 2), offloading=(0, 2))
    recipe = Recipe.model_validate(Layout.of(cut, global_batch=8).recipe_changes())
    assert (stage_count(recipe), device_of_stage(recipe)) == (3, (0, 1, 0))
    found = stage_settings(recipe, live=(1, 1, 1))
    assert [one.recomputes for one in found] == [one.offloads for one in found] == [True, False, True]
    assert stage_count(Recipe.model_validate(Layout(micro=8).recipe_changes())) == 1


def test_one_process_plays_all_devices_of_all_replicas() -> None:
    layout = Layout(replicas=4, accumulation=2, group=2, micro=3, stages=4, schedule="gpipe")
    played = Layout.of(layout.played(), global_batch=layout.global_batch)
    assert (played.ranks, played.replicas, played.schedule) == (1, 1, "gpipe")
    assert played.normalised_set == layout.normalised_set


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("replica=2", "Did you mean replicas?"),
        ("2", "is not a layout setting"),
        ("replicas=0", "replicas needs one whole number of at least 1, as in replicas=2."),
        ("replicas=2,replicas=2", "needs one whole number"),
        ("replicas=4,group=3", "replicas=3,group=3 works."),
        ("stages=2,schedule=gipe", "schedule needs one of sequential, grouped, 1f1b, gpipe"),
        ("schedule=gpipe", "has no effect without pipeline stages"),
        ("stages=4,mapping=0 1", "names 2 devices for 4 stages"),
        ("stages=2,mapping=0 x", "mapping needs the device of each stage, as in mapping=0 1 1 0."),
        ("stages=2,recomputation=2", "the stages are 0 to 1"),
        ("stages=2,recomputation=no", "recomputation needs true, or the numbers of stages"),
        ("splits=a b,stages=2", "splits the model into 3 stages"),
        ("stages=2,split_by=size", "split_by needs one of cost, parameters, time"),
        ("replicas=2,stages=2,processes=1", "processes=1 runs all stages of one replica in one process"),
        ("stages=2,processes=2", "processes needs 1"),
    ],
)
def test_what_is_no_layout_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInputError, match="--layouts") as refusal:
        parse_cuts(text)
    assert said in str(refusal.value)


def test_one_process_of_the_same_sets_is_cut_in_no_other_way() -> None:
    layout = Layout(replicas=4, accumulation=3, group=2, micro=5)
    assert layout.in_one_process() == Layout(micro=10, accumulation=6)
    assert Layout.of(layout, global_batch=layout.global_batch) == layout
    assert layout.ranks == 4


def test_layouts_in_json_have_the_keys_that_all_layouts_have() -> None:
    found = Layout(replicas=2, micro=4).to_json(has_batch_norm=True)
    assert found["layout"] == "replicas=2"
    assert (found["schedule"], found["recomputation"], found["normalised_set"]) == ("none", False, 4)
    cut = Layout(micro=4, stages=2, schedule="gpipe", recomputation=(1,)).to_json(has_batch_norm=True)
    assert (cut["schedule"], cut["recomputation"], cut["device_mapping"]) == ("gpipe", [1], [0, 1])
    assert set(found) <= set(cut)
    assert "group" not in Layout(replicas=2, micro=4).to_json(has_batch_norm=False)
