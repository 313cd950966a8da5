"""`drivetrain report --live`: what is handed to the server, and what is said about bad input."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.main import main
from drivetrain.report.live import serve
from tests.report.live.served import write_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the server was asked for, which does not run."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(
        serve, "serve_live", lambda directory, **values: found.append({"directory": directory, **values})
    )
    return found


def test_the_folder_and_the_address(asked: list[dict[str, Any]]) -> None:
    assert main(["report", "--live"]) == 0
    assert main(["report", "--live", "mine", "--host", "0.0.0.0", "--port", "0"]) == 0
    places = [(str(call["directory"]), call["host"], call["port"]) for call in asked]
    assert places == [("runs", "127.0.0.1", None), ("mine", "0.0.0.0", 0)]


def test_a_page_is_drawn_with_the_script_that_follows_the_run(
    asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert main(["report", "--live"]) == 0
    contents = asked[0]["collect"]([write_run(tmp_path / "a")])
    assert (contents["live"], [run["name"] for run in contents["runs"]]) == (True, ["a"])
    assert "<script>follow()</script>" in asked[0]["render"](contents, "follow()")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--port", "80"], "--port 80 has no effect without --live"),
        (["--host", "::", "runs/a"], "--host :: has no effect without --live"),
        (["runs/a", "--live"], "RUN runs/a has no effect with --live"),
        (["--live", "--output", "a.html"], "--output a.html has no effect with --live"),
        (["--live", "nowhere"], "--live nowhere is not a folder"),
        ([], "RUN names no run"),
    ],
)
def test_bad_input_is_named(
    words: list[str], sentence: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
