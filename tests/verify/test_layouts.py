"""Which layouts there are, and which of them are comparable."""

import pytest

from drivetrain.errors import BadInputError
from drivetrain.verify.layouts import (
    Cut,
    Layout,
    choose_layouts,
    pair_with_references,
    parse_cuts,
    reference_of,
)

WITH_NORM = reference_of(micro=4, group=1, global_batch=8, has_batch_norm=True)
WITHOUT_NORM = reference_of(micro=4, group=1, global_batch=8, has_batch_norm=False)


def _usual(*, has_batch_norm: bool, own: tuple[Cut, ...] = ()) -> list[str]:
    reference = WITH_NORM if has_batch_norm else WITHOUT_NORM
    chosen = choose_layouts((), own=own, reference=reference, group=1, has_batch_norm=has_batch_norm)
    return [layout.name for layout in chosen]


def test_cuts_are_read_as_they_are_named() -> None:
    text = "replicas=2,accumulation=2;replicas=4,group=2;replicas=1"
    cuts = parse_cuts(f" {text} ; ")
    assert cuts == (Cut(replicas=2, accumulation=2), Cut(replicas=4, group=2), Cut())
    assert ";".join(cut.name for cut in cuts) == text
    assert parse_cuts("") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("replica=2", "Did you mean replicas?"),
        ("2", "is no part of a layout"),
        ("replicas=0", "replicas needs one whole number from 1, as in replicas=2."),
        ("replicas=2,replicas=2", "needs one whole number"),
        ("replicas=4,group=3", "replicas=3,group=3 works."),
    ],
)
def test_what_is_no_layout_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInputError, match="--layouts") as refusal:
        parse_cuts(text)
    assert said in str(refusal.value)


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
    assert _usual(has_batch_norm=False, own=(Cut(replicas=8),))[0] == "replicas=8"


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


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (Cut(replicas=3), "--global-batch-size 9 works."),
        (Cut(replicas=2, group=2), "group has no effect on a model without batch norm"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(cut: Cut, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        choose_layouts([cut], own=(), reference=WITHOUT_NORM, group=1, has_batch_norm=False)
