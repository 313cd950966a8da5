"""Every module of the corpus in every layout: what one process computes in one piece, or a refusal in words."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch

import tests.corpus.modules  # noqa: F401
from drivetrain.core.errors import BadInputError
from drivetrain.program import capture_choice
from drivetrain.ranks.pool import RankPool
from tests.corpus.known import KNOWN
from tests.corpus.layouts import REFERENCE, comparable, layout_of, not_comparable
from tests.corpus.registry import CASES, Case
from tests.corpus.runs import (
    Trained,
    different,
    differing_bits,
    differing_from_torch,
    train_case,
    train_on_rank,
    warnings_of,
)
from tests.program.tape import Tape

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # Of torch, about hooks while a model is traced, and about old ways to write a layer.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
]
# Two updates before a recording, and one that is replayed.
_CAPTURED_UPDATES = 4


def _params(*pairs: tuple[Case, str]) -> list[object]:
    """Cases with what is tried on them; what is known to fail has to fail."""
    return [
        pytest.param(
            case,
            what,
            id=f"{case.name}-{what}",
            marks=[pytest.mark.xfail(reason=KNOWN[case.name][what], strict=True)]
            if what in KNOWN.get(case.name, {})
            else [],
        )
        for case, what in pairs
    ]


@cache
def _reference(name: str, *, updates: int = 2) -> Trained:
    """One process in one piece; a module that this refuses raises again for whoever asks."""
    return train_case(CASES[name], updates=updates)


def _check(case: Case, layout: str, pool: RankPool | None = None) -> None:
    """Compares a layout with the reference."""
    expected = _reference(case.name)
    chosen = layout_of(case, layout)
    if pool is None:
        found = train_case(case, chosen, starts=expected.states)
    else:
        found = pool.run(train_on_rank, case.name, chosen, expected.states, ranks=chosen.ranks)[0]
    assert not (difference := different(case, expected, found)), difference


def _expect(case: Case, layout: str, pool: RankPool | None = None) -> None:
    fragment = case.refusal(layout)
    if fragment is not None:
        with pytest.raises(BadInputError, match=fragment):
            _check(case, layout, pool)
        return
    try:
        _check(case, layout, pool)
    except BadInputError as refusal:
        if not case.may_be_refused:
            raise
        assert str(refusal).endswith(".")


def _pairs(*, ranks: bool) -> Iterator[tuple[Case, str]]:
    for case in CASES.values():
        for layout in comparable(case):
            if (layout_of(case, layout).ranks > 1) == ranks:
                yield case, layout


def _each(what: str, *, draws: bool = True) -> list[object]:
    """All modules that can be trained at all, with the name of one more check."""
    chosen = [case for case in CASES.values() if "all" not in case.refused and (draws or not case.draws)]
    return _params(*((case, what) for case in chosen))


def test_the_corpus_is_large() -> None:
    assert len(CASES) >= 80


def test_what_is_known_to_fail_is_tried() -> None:
    tried = {case: {*comparable(CASES[case]), *_CHECKS, *not_comparable(CASES[case])} for case in CASES}
    assert not [(case, what) for case in KNOWN for what in KNOWN[case] if what not in tried[case]]


_CHECKS = ("torch", "again", "continued", "given", "twin", "captured")


@pytest.mark.parametrize(("case", "layout"), _params(*_pairs(ranks=False)))
def test_a_layout_computes_what_one_process_does(case: Case, layout: str) -> None:
    _expect(case, layout)


@pytest.mark.parametrize(("case", "layout"), _params(*_pairs(ranks=True)))
def test_ranks_compute_what_one_process_does(case: Case, layout: str, rank_pool: RankPool) -> None:
    _expect(case, layout, rank_pool)


@pytest.mark.parametrize(
    ("case", "layout"),
    _params(*((case, name) for case in CASES.values() if case.warns for name in not_comparable(case))),
)
def test_a_layout_that_changes_a_models_own_state_is_announced(case: Case, layout: str) -> None:
    said = warnings_of(case, layout_of(case, layout))
    assert any("itself" in text and "depend" in text for text in said), said


@pytest.mark.parametrize(("case", "_what"), _each("torch", draws=False))
def test_one_process_computes_what_torch_does(case: Case, _what: str) -> None:
    """By a loop of a few lines, over the same samples."""
    _unless_refused(case, lambda: differing_from_torch(case, _reference(case.name)))


@pytest.mark.parametrize(("case", "_what"), _each("again"))
def test_two_runs_have_the_same_bits(case: Case, _what: str) -> None:
    _unless_refused(case, lambda: differing_bits(_reference(case.name), train_case(case)))
