"""Which layouts are measured, and which of them are comparable."""

from dataclasses import replace

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.schedules.accumulation_check import check_accumulation
from drivetrain.schedules.by_name import SCHEDULE_NAMES
from drivetrain.verify.choice import (
    Choice,
    choose_layouts,
    pair_with_references,
    reference_of,
    usual_pipelines,
)
from drivetrain.verify.cuts import Cut, Layout
from drivetrain.verify.layouts import parse_cuts

WITH_NORM = reference_of(micro=4, group=1, global_batch=8, has_batch_norm=True)
WITHOUT_NORM = reference_of(micro=4, group=1, global_batch=8, has_batch_norm=False)


def _choice(*, has_batch_norm: bool, own: tuple[Cut, ...] = ()) -> Choice:
    reference = WITH_NORM if has_batch_norm else WITHOUT_NORM
    return choose_layouts((), own=own, reference=reference, group=1, has_batch_norm=has_batch_norm)


def _usual(*, has_batch_norm: bool) -> list[str]:
    usual = _choice(has_batch_norm=has_batch_norm).usual
    return [layout.name for layout in usual if not layout.is_staged]


def test_the_reference_is_uncut_unless_batch_norm_needs_the_micro_batch() -> None:
    assert Layout(micro=8) == WITHOUT_NORM
    assert Layout(micro=4, accumulation=2) == WITH_NORM
    grouped = reference_of(micro=2, group=2, global_batch=8, has_batch_norm=True)
    assert grouped == Layout(micro=4, accumulation=2)


def test_the_usual_layouts() -> None:
    plain = ["accumulation=2", "accumulation=4", "replicas=2", "replicas=4", "replicas=2,accumulation=2"]
    assert _usual(has_batch_norm=False) == plain
    groups = ["replicas=2,accumulation=2,group=2", "replicas=4,group=2"]
    assert _usual(has_batch_norm=True) == [*plain[1:], *groups]
    assert [one.name for one in _choice(has_batch_norm=False, own=(Cut(replicas=8),)).asked] == ["replicas=8"]


def test_a_usual_layout_that_was_asked_for_is_measured_once() -> None:
    own = Cut(accumulation=4, stages=2)
    choice = _choice(has_batch_norm=True, own=(own,))
    assert [layout.name for layout in choice.asked] == [own.name]
    assert own.name not in [layout.name for layout in choice.usual]
    assert any(layout.is_staged for layout in choice.usual)


def test_a_cut_model_is_held_against_the_whole_one_with_the_same_micro_batches() -> None:
    layout = Layout(accumulation=4, micro=2, stages=2, schedule="gpipe", recomputation=True)
    for one in (layout, replace(layout, micro=4, accumulation=2)):
        (pair,) = pair_with_references([one], reference=WITH_NORM, has_batch_norm=True)
        assert pair.reference == Layout(accumulation=one.accumulation, micro=one.micro)


def test_a_layout_is_compared_where_the_same_samples_are_normalised_together() -> None:
    layouts = [
        Layout.of(cut, global_batch=8)
        for cut in parse_cuts("replicas=2;replicas=4,group=2;replicas=4;accumulation=4;replicas=4,group=4")
    ]
    pairs = pair_with_references(layouts, reference=WITH_NORM, has_batch_norm=True)
    assert [pair.reference for pair in pairs] == [
        WITH_NORM,
        WITH_NORM,
        Layout(micro=2, accumulation=4),
        None,
        Layout(micro=8),
    ]
    pairs = pair_with_references(layouts, reference=WITHOUT_NORM, has_batch_norm=False)
    assert {pair.reference for pair in pairs} == {WITHOUT_NORM}


def test_groups_are_compared_in_two_passes_of_batch_norm_on_both_sides() -> None:
    layouts = [Layout(replicas=2, micro=4), Layout(replicas=4, group=2, micro=2)]
    plain, grouped = (
        pair.rounded_alike()
        for pair in pair_with_references(layouts, reference=WITH_NORM, has_batch_norm=True)
    )
    assert (plain.layout, plain.reference) == (layouts[0], WITH_NORM)
    assert grouped.reference is not None
    assert (grouped.layout.stable_norm, grouped.reference.stable_norm) == (True, True)
    assert grouped.layout.recipe_changes()["stable_norm"]
    assert "stable_norm" not in plain.layout.recipe_changes()


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (Cut(replicas=3), "--global-batch-size 9 works."),
        (Cut(stages=2, schedule="grouped", accumulation=2), "--gradient-accumulation-count 4 or 8 works"),
        (Cut(replicas=2, group=2), "group has no effect on a model without batch norm"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(cut: Cut, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        choose_layouts([cut], own=(), reference=WITHOUT_NORM, group=1, has_batch_norm=False)


def test_every_schedule_a_loop_recomputation_and_real_ranks() -> None:
    cuts, notes = usual_pipelines(global_batch=8, fewest=2)
    assert [cut.schedule for cut in cuts[:5]] == list(SCHEDULE_NAMES)
    assert [cut.ranks for cut in cuts] == [1] * 7 + [2, 4]
    assert any(cut.mapping == (0, 1, 1, 0) for cut in cuts)
    assert any(cut.recomputation for cut in cuts)
    assert {cut.parts for cut in cuts} == {4}
    assert notes == []


@pytest.mark.parametrize("global_batch", [6, 8, 9, 12, 32])
@pytest.mark.parametrize("marked_stages", [0, 2, 3, 4, 6])
def test_no_schedule_gets_micro_batches_that_it_cannot_take(global_batch: int, marked_stages: int) -> None:
    cuts, notes = usual_pipelines(global_batch=global_batch, fewest=2, marked_stages=marked_stages)
    for cut in cuts:
        assert global_batch % cut.parts == 0
        assert global_batch // cut.parts >= 2
        assert cut.ranks <= 4
        check_accumulation(cut.schedule, stages=cut.stages, accumulation=cut.accumulation)
    has_grouped = any(cut.schedule == "grouped" for cut in cuts)
    assert has_grouped == (not notes)
    assert {cut.stages for cut in cuts} <= ({marked_stages} if marked_stages else {2, 4})


def test_a_batch_that_cannot_be_cut_has_no_pipelines() -> None:
    assert usual_pipelines(global_batch=3, fewest=2) == (
        [],
        ["stages: skipped, because a global batch of 3 has too few micro-batches"],
    )
    assert usual_pipelines(global_batch=8, fewest=2, marked_stages=1)[0] == []


@pytest.mark.parametrize(
    ("has_batch_norm", "family"), [(True, "replicas=2,group=2"), (False, "accumulation=2")]
)
def test_a_quick_verification_has_one_layout_per_family(has_batch_norm: bool, family: str) -> None:
    reference = reference_of(micro=2, group=1, global_batch=4, has_batch_norm=has_batch_norm)
    choice = choose_layouts(
        (), own=(), reference=reference, group=1, has_batch_norm=has_batch_norm, quick=True
    )
    assert [layout.name for layout in choice.usual] == [
        "replicas=2",
        family,
        "accumulation=2,stages=2,schedule=1f1b,processes=1",
        "accumulation=2,stages=2,schedule=1f1b,recomputation=true,processes=1",
        "accumulation=2,stages=2,schedule=1f1b",
    ]
    assert {layout.global_batch for layout in choice.usual} == {4}
    pairs = pair_with_references(choice.usual, reference=reference, has_batch_norm=has_batch_norm)
    assert None not in [pair.reference for pair in pairs]


@pytest.mark.parametrize("marked_stages", [3, 6])
def test_a_quick_verification_follows_marks(marked_stages: int) -> None:
    cuts, _ = usual_pipelines(global_batch=12, fewest=2, marked_stages=marked_stages, quick=True)
    assert {cut.stages for cut in cuts} == {marked_stages}
    assert [cut.ranks for cut in cuts] == ([1, 1, 3] if marked_stages == 3 else [1, 1])


def test_draws_per_micro_batch_are_compared_where_micro_batches_have_one_size() -> None:
    sizes = {"micro": 4, "group": 1, "global_batch": 8}
    reference = reference_of(**sizes, has_batch_norm=False, keeps_micro_batches=True)
    assert reference == Layout(micro=4, accumulation=2)
    layouts = [
        Layout.of(cut, global_batch=8)
        for cut in parse_cuts("replicas=2;accumulation=4;replicas=4;accumulation=4,stages=2;stages=2")
    ]
    pairs = pair_with_references(layouts, reference=reference, has_batch_norm=False, keeps_micro_batches=True)
    smaller = Layout(micro=2, accumulation=4)
    assert [pair.reference for pair in pairs] == [reference, None, smaller, smaller, Layout(micro=8)]


def test_a_group_has_no_reference_with_its_draws() -> None:
    """One process that normalises the same set has larger micro-batches."""
    grouped = Layout(replicas=4, group=2, micro=2)
    for draws, expected in ((False, WITH_NORM), (True, None)):
        (pair,) = pair_with_references(
            [grouped], reference=WITH_NORM, has_batch_norm=True, keeps_micro_batches=draws
        )
        assert pair.reference == expected
