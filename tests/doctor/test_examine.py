from pathlib import Path

import pytest

from drivetrain.console.reporter import Reporter
from drivetrain.doctor import examine as examination
from drivetrain.doctor.examine import examine, is_busy, is_fit
from drivetrain.doctor.finding import Finding, gibibytes, note, ok, problem
from tests.run.shown_work import ShownWork


def _never() -> list[Finding]:
    raise AssertionError("it needs torch")


def test_only_problems_make_a_machine_unfit() -> None:
    assert is_fit([ok("a", "."), note("b", ".")])
    assert not is_fit([ok("a", "."), problem("b", ".")])


def test_a_load_makes_a_machine_busy_and_not_unfit() -> None:
    loaded = [ok("a", "."), note("load", ".")]
    assert is_fit(loaded)
    assert is_busy(loaded)
    assert not is_busy([note("a", "."), ok("load", ".")])


def test_without_torch_the_rest_is_still_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "check_torch", lambda: problem("torch", "there is none."))
    for name in ("check_half_types", "check_accelerators", "check_ranks"):
        monkeypatch.setattr(examination, name, _never)
    found = examine(tmp_path, reporter=Reporter(quiet=True))
    assert not is_fit(found)
    assert [finding.topic for finding in found][:3] == ["python", "torch", "processor"]


def test_with_torch_everything_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "check_torch", lambda: ok("torch", "there."))
    monkeypatch.setattr(examination, "check_half_types", lambda: [ok("half", ".")])
    monkeypatch.setattr(examination, "check_accelerators", lambda: [ok("accelerator", ".")])
    monkeypatch.setattr(examination, "check_ranks", lambda: ok("ranks", "."))
    shown = ShownWork()
    topics = [finding.topic for finding in examine(tmp_path, reporter=shown)]
    assert shown.names == shown.ended == ["looking for torch", "examining this machine"]
    assert shown.counted["examining this machine"] == list(range(8))
    assert shown.totals["examining this machine"] == 8
    assert {"half", "accelerator", "ranks", "compiler", "disk", "wandb"} <= set(topics)
    assert len(set(topics)) == len(topics)


def test_sizes() -> None:
    assert gibibytes(3 << 29) == "1.5 GiB"
