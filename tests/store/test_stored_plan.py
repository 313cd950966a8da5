"""The cut that a run once measured is taken again."""

from drivetrain.store.stored_plan import stored_cut

MEASURED = {"splits": {"by": "time", "used": ["b"], "recommended": ["b"]}}


def test_a_measured_cut_is_kept() -> None:
    assert stored_cut(MEASURED, stages=2) == ("b",)


def test_a_cut_for_other_stages_or_by_another_rule_is_not() -> None:
    assert stored_cut(MEASURED, stages=3) is None
    assert stored_cut({"splits": {**MEASURED["splits"], "by": "cost"}}, stages=2) is None
    assert stored_cut({"total_updates": 3}, stages=2) is None


def test_beside_the_user_s_own_cut_it_is_the_recommended_one() -> None:
    plan = {"splits": {"by": "time", "used": ["a"], "recommended": ["b"]}}
    assert stored_cut(plan, stages=2) == ("b",)
