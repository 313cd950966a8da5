"""JSON inside a script element says what it said, and no text in it can end the element."""

import json

from drivetrain.report.page.embedding import embedded_json

NASTY = "</script><script>alert(1)</script><!-- & \u2028 \u2029 \ud800"


def test_no_sign_that_html_knows_is_left() -> None:
    text = embedded_json({"name": NASTY, NASTY: [NASTY]})
    assert not set("<>&\u2028\u2029") & set(text)
    assert text.isascii()


def test_the_value_comes_back() -> None:
    value: dict[str, object] = {"name": NASTY, "numbers": [1, 2.5, None, True], "nested": [{"a": []}]}
    assert json.loads(embedded_json(value)) == value


def test_numbers_that_are_not_finite_become_null() -> None:
    value = {"scores": {"a": float("nan"), "b": 1.0}, "pair": (float("inf"), "x"), "y": [-float("inf")]}
    found = json.loads(embedded_json(value))
    assert found == {"scores": {"a": None, "b": 1.0}, "pair": [None, "x"], "y": [None]}
