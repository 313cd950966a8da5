"""The folder of a suite: what counts as ended, and what it refuses to mix."""

from pathlib import Path

import pytest

from drivetrain.bench.suite.case import SuiteSettings
from drivetrain.bench.suite.folder import Outcome, SuiteFolder
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_json
from tests.bench.suite.fake_cases import fake_cases, fake_result

CASE = fake_cases()[0]


def _folder(tmp_path: Path) -> SuiteFolder:
    folder = SuiteFolder(tmp_path / "suite")
    folder.begin(SuiteSettings())
    return folder


def test_a_case_has_ended_once_its_end_is_written(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    write_json(folder.result_path(CASE), fake_result(CASE.arguments(SuiteSettings())))
    assert folder.outcome(CASE) is None
    folder.keep(CASE, Outcome(status="measured", seconds=1.0))
    found = folder.outcome(CASE)
    assert found is not None
    assert found.is_measured
    folder.forget(CASE)
    assert folder.outcome(CASE) is None


@pytest.mark.parametrize("content", ["", '{"entries": [', "[]"])
def test_a_half_written_result_does_not_count(tmp_path: Path, content: str) -> None:
    folder = _folder(tmp_path)
    folder.keep(CASE, Outcome(status="measured", seconds=1.0))
    assert folder.outcome(CASE) is None
    folder.result_path(CASE).write_text(content)
    assert folder.outcome(CASE) is None


def test_a_failure_is_kept_with_its_reason(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    folder.keep(CASE, Outcome(status="does not fit", why="CUDA out of memory", seconds=3.0))
    assert folder.outcome(CASE) == Outcome(status="does not fit", why="CUDA out of memory", seconds=3.0)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    folder.begin(SuiteSettings())
    with pytest.raises(BadInputError, match="results of --image-size 224, not of 64"):
        folder.begin(SuiteSettings(image_size=64))


def test_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("x")
    with pytest.raises(BadInputError, match="other files"):
        SuiteFolder(tmp_path).begin(SuiteSettings())
    with pytest.raises(BadInputError, match="not a folder"):
        SuiteFolder(tmp_path / "photo.jpg").begin(SuiteSettings())
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]
