"""`drivetrain report`: where the page goes, and what is said about bad input."""

import json
import re
from pathlib import Path

import pytest

from drivetrain.cli.main import main
from tests.run.small_training import TrainSmall

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def runs(train_small: TrainSmall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two runs in the working directory."""
    monkeypatch.chdir(tmp_path)
    paths = [Path("runs/one"), Path("runs/two")]
    for seed, path in enumerate(paths):
        train_small(path, seed=seed)
    return paths


def _names_on(page: Path) -> list[str]:
    found = re.search(r'<script type="application/json" id="contents">(.*?)</script>', page.read_text())
    assert found is not None
    return [run["name"] for run in json.loads(found.group(1))["runs"]]


@pytest.mark.usefixtures("no_pictures")
def test_where_the_page_goes(runs: list[Path], capsys: Capture) -> None:
    one, two = map(str, runs)
    asked = [["report", one], ["report", one, two], ["report", two, "--output", "runs/page.html"]]
    assert [main(words) for words in asked] == [0, 0, 0]
    pages = ["runs/one/report.html", "report.html", "runs/page.html"]
    assert capsys.readouterr().out.splitlines()[-3:] == pages
    assert [_names_on(Path(page)) for page in pages] == [["one"], ["one", "two"], ["two"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drivetrain.cli.report.write_atomically", _no_space)
        assert main(["report", one]) == 2
    assert "runs/one/report.html cannot be written (No space left on device)" in capsys.readouterr().err


def _no_space(path: Path, content: bytes) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing"], "missing does not exist"),
        (["empty"], "empty"),
        ([], "RUN"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    assert main(["report", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (".", "--output . is a folder; name a file in it: --output report.html."),
        (
            "no/page.html",
            "--output no/page.html: the folder no does not exist; create it, or leave --output out.",
        ),
    ],
)
def test_a_place_that_cannot_be_written_is_named(
    output: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", "runs/any", "--output", output]) == 2
    assert said in capsys.readouterr().err
