"""What compiling gives is remembered in the cache folder."""

import json
from pathlib import Path

import pytest

from drivetrain.run.compiling import compile_choice as compile_gains
from drivetrain.run.compiling.compile_choice import Gain, recall_gain, remember_gain

MARKS = {"device": "a processor", "image": [3, 32, 32]}
GAIN = Gain(plain_s=0.5, compiled_s=0.25, compiling_s=20.0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget(monkeypatch)
    return tmp_path / "drivetrain" / "compile-gains"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process would."""
    monkeypatch.setattr(compile_gains, "_known", {})


def test_another_process_recalls_the_same_work_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recall_gain(MARKS) is None
    remember_gain(MARKS, GAIN)
    forget(monkeypatch)
    assert recall_gain(MARKS) == GAIN
    assert recall_gain({**MARKS, "device": "another"}) is None
    assert [path.suffix for path in cache.iterdir()] == [".json"]


def test_what_cannot_be_read_is_measured_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember_gain(MARKS, GAIN)
    forget(monkeypatch)
    (path,) = cache.iterdir()
    for text in ("", "[]", "{}", json.dumps({"marks": MARKS, "gain": {"unknown": 1}})):
        path.write_text(text)
        assert recall_gain(MARKS) is None


def test_without_a_folder_one_process_remembers_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_gains, "cache_folder", lambda: None)
    remember_gain(MARKS, GAIN)
    assert recall_gain(MARKS) == GAIN
    forget(monkeypatch)
    assert recall_gain(MARKS) is None
