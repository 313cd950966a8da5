"""Where the values of a recipe come from stays known while a run continues."""

from pathlib import Path

from drivetrain.recipe.messages import COMMAND_LINE, DEFAULT, RUN_DIRECTORY
from drivetrain.store.origins import kept_origins, write_origins


def test_defaults_are_left_out(tmp_path: Path) -> None:
    write_origins(tmp_path / "origins.json", {"model": "recipe digits (digits.yaml:2)", "seed": DEFAULT})
    assert kept_origins(tmp_path / "origins.json") == {"model": "recipe digits (digits.yaml:2)"}


def test_a_continued_run_keeps_the_first_origins(tmp_path: Path) -> None:
    path = tmp_path / "origins.json"
    write_origins(path, {"model": COMMAND_LINE, "seed": DEFAULT, "num_epochs": "my.yaml:3"})
    write_origins(path, {"model": RUN_DIRECTORY, "seed": RUN_DIRECTORY, "num_epochs": COMMAND_LINE})
    assert kept_origins(path) == {"model": COMMAND_LINE, "num_epochs": COMMAND_LINE}


def test_without_a_file_they_are_not_known(tmp_path: Path) -> None:
    assert kept_origins(tmp_path / "origins.json") is None
    write_origins(tmp_path / "origins.json", {"model": RUN_DIRECTORY})
    assert kept_origins(tmp_path / "origins.json") == {"model": RUN_DIRECTORY}
