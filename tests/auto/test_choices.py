"""What is said of the choices, and how a plan shows them."""

from dataclasses import replace

import pytest
from rich.console import Console

from drivetrain.auto.choices import choice_rows, show_choices
from drivetrain.console.reporter import Reporter
from drivetrain.plan.render_choices import print_choices
from drivetrain.recipe.load import ResolvedRecipe, resolve_recipe


def _resolved() -> ResolvedRecipe:
    decided = {"model": "resnet18", "class_weights": ("balanced",), "weight_decay": 0.05}
    resolved = resolve_recipe(overrides={"dataset": "image-folder", "data_dir": "photos"}, decided=decided)
    reasons = {"model": "it fits", "class_weights": "few cats", "weight_decay": "usual"}
    return replace(resolved, reasons=reasons, notes=("two classes of images",))


def test_rows_have_option_value_and_reason() -> None:
    assert choice_rows(_resolved()) == [
        ("--model", "resnet18", "it fits"),
        ("--class-weights", "balanced", "few cats"),
        ("--weight-decay", "0.05", "usual"),
    ]


def test_a_training_says_what_was_found_and_the_main_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        show_choices(_resolved(), reporter=reporter)
    assert capsys.readouterr().out == (
        "two classes of images\n"
        "chosen from your data: --model resnet18; recipe.yaml has all 3 choices with their reasons\n"
    )


def test_without_choices_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        show_choices(resolve_recipe(overrides={"dataset": "digits"}), reporter=reporter)
    assert capsys.readouterr().out == ""


def test_a_plan_shows_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    resolved = _resolved()
    print_choices(resolved.notes, choice_rows(resolved), console=Console(width=100))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "two classes of images"
    assert lines[1].split() == ["option", "chosen", "because"]
    assert lines[2].split() == ["--model", "resnet18", "it", "fits"]
