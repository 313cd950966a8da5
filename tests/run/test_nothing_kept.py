"""A run that was stopped before its first update, or killed before it left anything, binds nobody."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.run.loop.loop import RunLoop
from drivetrain.store.checkpoint_paths import checkpoint_paths
from tests.run.small_runs import LITTLE

pytestmark = pytest.mark.usefixtures("no_pictures")

OPTIONS = [*LITTLE, "--max-updates=2"]


def _train(path: Path, *options: str) -> int:
    return main(["train", *OPTIONS, f"--output-dir={path}", *options])


def _stop_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunLoop.run

    def stopped(loop: RunLoop, first: int) -> int:
        loop.context.stop.make(143)
        return run(loop, first)

    monkeypatch.setattr(RunLoop, "run", stopped)


def _kill_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> int:
        raise MemoryError

    monkeypatch.setattr(RunLoop, "run", killed)


def test_after_a_stop_another_command_starts_as_if_nothing_had_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        _stop_at_once(patch)
        assert _train(tmp_path / "run", "--seed=1", "--learning-rate=0.5", "--label-smoothing=0.1") == 143
    assert "stopped before the first update: nothing was saved" in capsys.readouterr().out
    assert _train(tmp_path / "run", "--seed=2") == 0
    assert _train(tmp_path / "afresh", "--seed=2") == 0
    newest = [checkpoint_paths(tmp_path / name / "checkpoints")[-1] for name in ("run", "afresh")]
    one, other = ((path / "model.safetensors").read_bytes() for path in newest)
    assert one == other


def test_after_a_kill_without_a_checkpoint_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _kill_at_once(patch)
        with pytest.raises(MemoryError):
            _train(tmp_path / "run", "--seed=1")
    assert (tmp_path / "run" / "identity.json").is_file()
    assert _train(tmp_path / "run", "--seed=2") == 0


def test_a_run_that_kept_something_still_binds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train(tmp_path / "run", "--seed=1") == 0
    assert _train(tmp_path / "run", "--seed=2") == BadInputError.exit_status
    assert "--seed is 2 but the run" in capsys.readouterr().err
