"""docs/commands.md is what the commands themselves say."""

import re
from pathlib import Path

import pytest

from drivetrain.cli.main import COMMANDS
from drivetrain.cli.reference import commands_page
from drivetrain.recipe.fields import option_name
from drivetrain.recipe.schema import Recipe

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == commands_page(), "`make commands` writes it anew"


@pytest.mark.parametrize("field", Recipe.model_fields)
def test_every_option_has_a_row_with_words(field: str) -> None:
    rows = re.findall(rf"^\| `{option_name(field)}` \| [^|]* \| (.+) \|$", commands_page(), re.MULTILINE)
    assert any(len(row.split()) >= 2 for row in rows)


def test_every_command_is_there_and_no_alias() -> None:
    page = commands_page()
    assert all(f"| `{name}` |" in page for name in COMMANDS)
    assert "--num-replicas" not in page
    assert "## `bench train`" in page
    assert "## `data pack`" in page
