"""Folders called like splits."""

from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.split_folders import split_called, split_folders


def test_spellings(tmp_path: Path) -> None:
    for name in ("Testing", "valid", "TRAIN", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "val").write_text("a file is no folder")
    assert split_folders(tmp_path) == {
        "train": tmp_path / "TRAIN",
        "validation": tmp_path / "valid",
        "test": tmp_path / "Testing",
    }
    assert [*split_folders(tmp_path)] == ["train", "validation", "test"]
    assert split_called("trainer") is None


@pytest.mark.parametrize("names", [("train", "Training"), ("val", "valid"), ("test", "testing")])
def test_two_folders_for_one_split(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    with pytest.raises(BadInputError, match=r"contains both .* and .*; keep only one"):
        split_folders(tmp_path)
