import json

import pytest

from drivetrain.cli.main import main
from drivetrain.doctor import examine as examination
from drivetrain.doctor.finding import Finding, note, ok, problem

Capture = pytest.CaptureFixture[str]
SOUND = [ok("python", "Python 3."), note("cores", "few, in [brackets].")]


def _find(findings: list[Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "examine", lambda folder, **_: findings)


def test_a_fit_machine(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    _find(SOUND, monkeypatch)
    assert main(["doctor"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["cores", "note", "few,", "in", "[brackets]."] in lines
    assert lines[-1] == ["This", "machine", "is", "ready", "for", "training."]


def test_a_busy_machine(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    _find([*SOUND, note("load", "7.0 on 2 cores.")], monkeypatch)
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "This machine is ready for training, but busy now."


def test_an_unfit_machine(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    _find([*SOUND, problem("torch", "none.")], monkeypatch)
    assert main(["doctor"]) == 1
    assert "Training cannot run on this machine" in capsys.readouterr().out


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    _find([problem("torch", "none.")], monkeypatch)
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "fit": False,
        "busy": False,
        "findings": [{"topic": "torch", "status": "problem", "sentence": "none."}],
    }


def test_links_are_measured_if_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    asked: list[bool] = []

    def examine(_: object, *, measures_links: bool, **__: object) -> list[Finding]:
        asked.append(measures_links)
        return SOUND

    monkeypatch.setattr(examination, "examine", examine)
    assert main(["doctor"]) == 0
    assert main(["doctor", "--links"]) == 0
    capsys.readouterr()
    assert asked == [False, True]
