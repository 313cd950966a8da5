"""Which run a process belongs to."""

from pathlib import Path

import pytest

from drivetrain.monitor.process_run import run_of_command, run_of_files


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    for name in ("recipe.yaml", "identity.json"):
        (path / name).write_text("")
    return path


@pytest.mark.parametrize(("name", "is_ours"), [(".lock", True), ("rank-3.log", True), ("notes.log", False)])
def test_a_rank_has_its_lock_or_its_log_open(run: Path, name: str, is_ours: bool) -> None:
    opened = [Path("/dev/null"), run.parent / name, run / name]
    assert run_of_files(opened) == (run if is_ours else None)


def test_a_command_line_names_its_run(run: Path) -> None:
    folder = str(run.parent)
    assert run_of_command(["drivetrain", "train", "--output-dir", "run"], folder=folder) == run
    assert run_of_command(["drivetrain", "train", f"--output_dir={run}"], folder=None) == run
    assert run_of_command(["drivetrain", "train", "--output-dir=run"], folder=None) is None
    assert run_of_command(["drivetrain", "train", "--output-dir", "other"], folder=folder) is None
    assert run_of_command(["drivetrain", "train", "--output-dir"], folder=folder) is None
    assert run_of_command(["drivetrain", "train"], folder=folder) is None
