"""Each module of the corpus in every layout: equal to one process in one piece, or refused in words."""

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.ranks.pool import RankPool
from tests.corpus.checks import difference, reference, train_captured, tried
from tests.corpus.controls import DrawsByNobody, KnowsItsMicroBatch
from tests.corpus.layouts import layout_of
from tests.corpus.modules import CASES
from tests.corpus.registry import Case
from tests.corpus.runs import different, differing_bits, train_case, train_on_rank

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # Of torch: about hooks while a model is traced, and about older ways to write a layer.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def _params(*, on_ranks: bool) -> list[object]:
    """Every module with the name of every check."""
    return [
        pytest.param(case, what, id=f"{case.name}, {what}")
        for case in CASES.values()
        for what in tried(case)
        if what.endswith("on ranks") == on_ranks
    ]


def _expect(case: Case, what: str, *, pool: RankPool | None = None) -> None:
    fragment = case.refusal(what)
    if fragment is not None:
        with pytest.raises(BadInputError, match=fragment):
            difference(case, what, pool=pool)
        return
    try:
        assert difference(case, what, pool=pool) == ""
    except BadInputError:
        if not case.may_be_refused:
            raise


@pytest.mark.parametrize(("case", "what"), _params(on_ranks=False))
def test_a_module_keeps_its_meaning(case: Case, what: str) -> None:
    _expect(case, what)


@pytest.mark.parametrize(("case", "what"), _params(on_ranks=True))
def test_a_module_keeps_its_meaning_on_ranks(case: Case, what: str, rank_pool: RankPool) -> None:
    _expect(case, what, pool=rank_pool)


def test_the_corpus_is_large() -> None:
    assert len(CASES) >= 180


_PLAIN = CASES["Plain"]


@pytest.mark.parametrize("what", ["2 stages", "2 stages, zero-bubble", "4 stages", "recomputation"])
def test_a_gradient_that_is_a_thousandth_too_long_is_noticed(what: str) -> None:
    expected = reference("Plain")
    layout = layout_of(_PLAIN, what)
    spoilt = train_case(_PLAIN, layout, starts=expected.states, spoil="block.conv.weight")
    assert different(_PLAIN, expected, spoilt).startswith("update 0, gradient of block.conv.weight")


@pytest.mark.parametrize("what", ["replicas on ranks", "stages on ranks"])
def test_a_gradient_of_ranks_that_is_a_thousandth_too_long_is_noticed(what: str, rank_pool: RankPool) -> None:
    expected, layout = reference("Plain"), layout_of(_PLAIN, what)
    parts = rank_pool.run(train_on_rank, "Plain", layout, expected.states, "tail.weight", ranks=2)
    assert different(_PLAIN, expected, parts[0]).startswith("update 0, gradient of tail.weight")


def test_a_module_that_depends_on_its_micro_batch_is_noticed() -> None:
    expected = train_case(_PLAIN, make=KnowsItsMicroBatch)
    larger = layout_of(_PLAIN, "larger micro-batches")
    assert different(
        _PLAIN, expected, train_case(_PLAIN, larger, starts=expected.states, make=KnowsItsMicroBatch)
    )


def test_a_draw_that_depends_on_what_was_computed_before_is_noticed() -> None:
    expected = train_case(_PLAIN, make=DrawsByNobody)
    assert differing_bits(expected, train_case(_PLAIN, make=DrawsByNobody))


def test_weights_that_a_wrong_state_begins_with_are_noticed() -> None:
    expected = reference("Plain")
    fresh = train_case(_PLAIN, starts=[expected.states[1]])
    assert different(_PLAIN, expected, fresh).startswith("update 1, ")


def test_the_stand_in_captures_ordinary_modules() -> None:
    names = ("Plain", "NoGradBlock", "BatchNormPlain", "DropoutLayers", "AttentionPlain", "SpectralNorm")
    found = {name: train_captured(CASES[name]).capture for name in names}
    assert set(found.values()) == {"captured"}, found
