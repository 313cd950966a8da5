"""What stands inside a sentence is short, printable and on one line."""

import pytest

from drivetrain.core.wording import shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("plain", "plain"),
        ("", "''"),
        ("  ", "'  '"),
        ("a\nb", "a b"),
        ("\x1b[31m", "'\\x1b[31m'"),
        (["x"], '["x"]'),
        ({"a": None, "b": True}, '{"a": null, "b": true}'),
        (None, "none"),
        ("x" * 61, "x" * 57 + "..."),
    ],
)
def test_shown(value: object, text: str) -> None:
    assert shown(value) == text
