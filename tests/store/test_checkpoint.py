import json
import resource
from pathlib import Path

import pytest
import torch

from drivetrain.core.errors import RunFailedError
from drivetrain.store import checkpoint as module
from drivetrain.store.checkpoint import (
    CorruptCheckpointError,
    load_checkpoint,
    newest_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from drivetrain.store.checkpoint_paths import checkpoint_paths

MODEL = {
    "b": torch.arange(6.0).view(2, 3),
    "a": torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
}
OPTIMISER = {"velocity/a": torch.zeros(2, 3, 4, 4)}


def _save(parent: Path, update: int) -> Path:
    return save_checkpoint(parent, update=update, model=MODEL, optimiser=OPTIMISER, state={"best": None})


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    loaded = load_checkpoint(_save(tmp_path, 7))
    assert loaded.update == 7
    assert set(loaded.model) == {"a", "b"}
    assert all(torch.equal(loaded.model[name], value) for name, value in MODEL.items())
    assert torch.equal(loaded.optimiser["velocity/a"], OPTIMISER["velocity/a"])


def test_equal_weights_are_equal_files(tmp_path: Path) -> None:
    first, second = _save(tmp_path / "one", 3), _save(tmp_path / "two", 3)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "manifest.json"])
def test_no_flipped_byte_goes_unnoticed(tmp_path: Path, name: str) -> None:
    path = _save(tmp_path, 1) / name
    content = path.read_bytes()
    for offset in range(0, len(content), max(1, len(content) // 40)):
        path.write_bytes(content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :])
        with pytest.raises(CorruptCheckpointError):
            load_checkpoint(path.parent)
    path.write_bytes(content)
    load_checkpoint(path.parent)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_newest_checkpoint_gives_way_to_the_one_before(tmp_path: Path, share: float) -> None:
    _save(tmp_path, 1)
    weights = _save(tmp_path, 2) / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: int(len(content) * share)])
    found, problems = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.update == 1
    assert len(problems) == 1
    assert "model.safetensors" in problems[0]


def test_a_missing_file_and_another_format_are_corrupt(tmp_path: Path) -> None:
    path = _save(tmp_path, 1)
    (path / "optimizer.safetensors").unlink()
    with pytest.raises(CorruptCheckpointError, match="optimizer"):
        load_checkpoint(path)
    newer = _save(tmp_path, 2) / "manifest.json"
    newer.write_text(json.dumps({**json.loads(newer.read_text()), "format": 99}))
    with pytest.raises(CorruptCheckpointError, match="format 99"):
        load_checkpoint(newer.parent)


def test_updates_are_ordered_as_numbers(tmp_path: Path) -> None:
    for update in (10, 9, 100):
        _save(tmp_path, update)
    assert [path.name for path in checkpoint_paths(tmp_path)] == ["9", "10", "100"]


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    for update in range(1, 6):
        _save(tmp_path, update)
    (tmp_path / ".partial-9").mkdir()
    prune_checkpoints(tmp_path, keep_last=2, keep_updates={1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "4", "5"]


def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    """A limit on file size fails a write half way, as a full disk does."""
    _save(tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    large = {"a": torch.zeros(100_000)}
    try:
        with pytest.raises(
            RunFailedError, match=r"disk is full.* needs about 400000 bytes.*update 1 is intact"
        ):
            save_checkpoint(tmp_path, update=2, model=large, optimiser={}, state={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    load_checkpoint(tmp_path / "1")


@pytest.mark.parametrize("phase", ["write_tensors", "write_json", "sync_directory", "put_in_place"])
def test_a_kill_in_any_phase_leaves_a_whole_checkpoint(
    tmp_path: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _save(tmp_path, 1)

    class Killed(BaseException):
        pass

    def die(*args: object, **options: object) -> None:
        raise Killed

    monkeypatch.setattr(module, phase, die)
    with pytest.raises(Killed):
        _save(tmp_path, 2)
    found, problems = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.update == 1
    assert problems == []
    monkeypatch.undo()
    _save(tmp_path, 2)
    prune_checkpoints(tmp_path, keep_last=2, keep_updates=set())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
