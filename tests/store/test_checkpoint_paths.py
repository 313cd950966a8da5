"""A checkpoint that is written again, cut short at every step: one of the two is always whole."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from drivetrain.core.errors import RunFailedError
from drivetrain.inference.model.restore import find_checkpoints
from drivetrain.store import checkpoint, checkpoint_paths
from drivetrain.store.checkpoint import newest_checkpoint, prune_checkpoints, save_checkpoint
from drivetrain.store.checkpoint_paths import sweep_partial
from drivetrain.store.directory import RunDirectory

OLD, NEW = 1.0, 2.0


class Killed(BaseException):
    """As sudden as a kill: no handler of errors runs."""


class Steps:
    """Counts what changes the disk, and ends the process, or fails, before the step `last`."""

    def __init__(self, last: int, error: BaseException) -> None:
        self.count = 0
        self._last, self._error = last, error

    def take(self) -> None:
        self.count += 1
        if self.count == self._last:
            raise self._error

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.take()
            return function(*args, **options)

        return call

    def remove(self, path: Path, ignore_errors: bool = False) -> None:
        """Removes a folder file by file."""
        if not path.exists():
            assert ignore_errors
            return
        for entry in sorted(path.iterdir()):
            self.take()
            entry.unlink()
        self.take()
        path.rmdir()


def _save(parent: Path, value: float) -> None:
    save_checkpoint(parent, update=3, model={"w": torch.full((4,), value)}, optimiser={}, state={"best": {}})


def _save_until(parent: Path, step: int, error: BaseException) -> int:
    """Writes update 3 again and is stopped before a step; returns how many steps there were."""
    steps = Steps(step, error)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "rmtree", steps.remove)
        patch.setattr(Path, "rename", steps.counted(Path.rename))
        patch.setattr(Path, "replace", steps.counted(Path.replace))
        patch.setattr(os, "fsync", steps.counted(os.fsync))
        for module in (checkpoint, checkpoint_paths):
            patch.setattr(module, "sync_directory", steps.counted(module.sync_directory))
        _save(parent, NEW)
    return steps.count


def _all_steps(tmp_path: Path) -> int:
    _save(tmp_path / "count", OLD)
    return _save_until(tmp_path / "count", 10_000, Killed())


def _found(parent: Path) -> float:
    found, problems = newest_checkpoint(parent)
    assert found is not None
    assert found.update == 3
    assert problems == []
    return float(found.model["w"][0])


def test_a_kill_at_any_step_leaves_a_whole_checkpoint_of_the_update(tmp_path: Path) -> None:
    seen = []
    for step in range(1, _all_steps(tmp_path) + 1):
        run = tmp_path / str(step)
        parent = run / "checkpoints"
        _save(parent, OLD)
        with pytest.raises(Killed):
            _save_until(parent, step, Killed())
        value = _found(parent)
        (chosen,) = find_checkpoints(RunDirectory(run), "3")
        assert float(chosen.model["w"][0]) == value
        sweep_partial(parent)
        assert [path.name for path in parent.iterdir()] == ["3"]
        assert _found(parent) == value
        _save(parent, NEW)
        prune_checkpoints(parent, keep_last=1, keep_updates=set())
        assert [path.name for path in parent.iterdir()] == ["3"]
        assert _found(parent) == NEW
        seen.append(value)
    assert seen == sorted(seen)
    assert {OLD, NEW} == set(seen)


def test_a_step_that_fails_puts_the_old_checkpoint_back(tmp_path: Path) -> None:
    for step in range(1, _all_steps(tmp_path) + 1):
        parent = tmp_path / str(step)
        _save(parent, OLD)
        with pytest.raises(RunFailedError, match="update 3 is intact"):
            _save_until(parent, step, OSError(5, "Input/output error"))
        _found(parent)
        assert "3" in [path.name for path in parent.iterdir()]


def test_a_folder_aside_is_nothing_where_the_new_one_is_in_place(tmp_path: Path) -> None:
    _save(tmp_path, OLD)
    shutil.copytree(tmp_path / "3", tmp_path / ".replaced-3")
    _save(tmp_path, NEW)
    assert [path.name for path in tmp_path.iterdir()] == ["3"]
    assert _found(tmp_path) == NEW
