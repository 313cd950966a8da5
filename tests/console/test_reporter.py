"""What is printed at each verbosity, and what is kept."""

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain.console.reporter import Reporter, VerbosityName
from drivetrain.crossvalidation.reporter import CrossvalReporter
from tests.run.small_training import SMALL, TrainSmall

pytestmark = pytest.mark.usefixtures("no_pictures")


def _speak(reporter: Reporter) -> None:
    reporter.say("a log line")
    reporter.detail("a detail")
    reporter.warn("take care")
    reporter.result("the result")


@pytest.mark.parametrize(
    ("verbosity", "printed"),
    [
        ("quiet", ["warning: take care", "the result"]),
        ("normal", ["a log line", "warning: take care", "the result"]),
        ("verbose", ["a log line", "a detail", "warning: take care", "the result"]),
    ],
)
def test_each_verbosity_prints_its_lines_and_the_log_always_the_normal_ones(
    verbosity: VerbosityName, printed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Reporter(verbosity=verbosity) as reporter:
        reporter.log_to(tmp_path / "log")
        _speak(reporter)
    assert capsys.readouterr().out.splitlines() == printed
    assert (tmp_path / "log").read_text().splitlines() == ["a log line", "warning: take care", "the result"]


def test_silence_for_callers_that_print_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Reporter(verbosity="verbose", quiet=True) as reporter:
        reporter.log_to(tmp_path / "log")
        _speak(reporter)
    assert capsys.readouterr().out == ""
    assert "the result" in (tmp_path / "log").read_text()


def test_progress_is_kept_but_not_printed_when_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Reporter(verbosity="quiet") as reporter:
        reporter.log_to(tmp_path / "log")
        reporter.start_progress("training", done=0, total=10)
        reporter.progress(3, "loss: 1.0")
    assert capsys.readouterr().out == ""
    assert (tmp_path / "log").read_text() == "training 3/10  0:00 so far  loss: 1.0\n"


def test_work_inside_other_work_has_lines_of_its_own_and_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        reporter.start_progress("training", total=10)
        reporter.progress(3)
        with reporter.showing("validating", total=7):
            reporter.progress(2)
        reporter.progress(4)
        with reporter.showing("validating", total=7):
            pass
        reporter.stop_progress()
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "training 3/10",
        "validating 2/7",
        "validating: done after 0:00",
        "training 4/10",
        "training: done after 0:00",
    ]


def test_work_that_does_not_tell_how_far_it_is_has_a_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("drivetrain.console.reporter._LINE_PERIOD_S", 0.0)
    monkeypatch.setattr("drivetrain.console.reporter._LOOK_S", 0.001)
    printed = threading.Event()
    monkeypatch.setattr(Reporter, "_print", _telling(Reporter._print, printed))
    with Reporter() as reporter, reporter.showing("compiling"):
        assert printed.wait(120)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["compiling  0:00 so far", "compiling: done after 0:00"]


def _telling(
    say: Callable[[Reporter, str], None], printed: threading.Event
) -> Callable[[Reporter, str], None]:
    def said(self: Reporter, text: str) -> None:
        say(self, text)
        printed.set()

    return said


def test_progress_does_not_bring_forth_what_a_cross_validation_holds_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with CrossvalReporter(verbosity="normal") as reporter:
        reporter.hold_back("fold 0 (1 of 5)")
        with reporter.showing("building the model", total=2):
            reporter.progress(1)
        reporter.say("it begins")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "building the model 1/2",
        "building the model: done after 0:00",
        "fold 0 (1 of 5)",
        "it begins",
    ]


def test_work_that_fails_is_not_called_done(capsys: pytest.CaptureFixture[str]) -> None:
    def write(reporter: Reporter) -> None:
        with reporter.showing("writing", total=2):
            reporter.progress(1)
            raise OSError("full")

    with Reporter() as reporter, pytest.raises(OSError, match="full"):
        write(reporter)
    printed = capsys.readouterr().out
    assert printed.startswith("writing 1/2")
    assert "done" not in printed


def test_work_that_was_stopped_is_not_called_done(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter, reporter.showing("training folds", total=2, is_done=lambda: False):
        reporter.progress(1)
    printed = capsys.readouterr().out
    assert printed.startswith("training folds 1/2")
    assert "done" not in printed


def test_a_cross_validation_keeps_its_silence_while_it_may_still_be_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("drivetrain.console.reporter._LINE_PERIOD_S", 0.0)
    monkeypatch.setattr("drivetrain.console.reporter._LOOK_S", 0.001)
    looked = threading.Event()
    original = Reporter._show_silent_work

    def look(self: Reporter) -> None:
        original(self)
        looked.set()

    monkeypatch.setattr(Reporter, "_show_silent_work", look)
    with CrossvalReporter(verbosity="normal") as reporter:
        reporter.hold_back("fold 0 (1 of 5)")
        with reporter.showing("building the model"):
            assert looked.wait(120)
    assert capsys.readouterr().out == ""


def test_nobody_is_told_of_work_where_nothing_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = threading.active_count()
    with Reporter(quiet=True) as reporter, reporter.showing("compiling"):
        assert threading.active_count() == before
    assert capsys.readouterr().out == ""


def test_a_terminal_shows_a_bar_for_each_work_and_takes_them_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with Reporter() as reporter:
        reporter.start_progress("training", done=312, total=1200)
        with reporter.showing("validating", total=60):
            assert reporter.progress_due()
            reporter.progress(24)
            reporter.say("a message " * 12)
        reporter.stop_progress()
        shown = capsys.readouterr().out
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", shown)]
    assert all(len(line) <= 80 for line in lines)
    assert any("312/1200" in line for line in lines)
    assert any(line.startswith("validating") and "24/60" in line for line in lines)
    assert "done after" not in shown
    assert not any(line.endswith(("messa", "mess", "m")) for line in lines)


def test_a_log_ends_where_another_begins(tmp_path: Path) -> None:
    with Reporter(quiet=True) as reporter:
        for name in ("first", "second"):
            reporter.log_to(tmp_path / name)
            reporter.say(name)
        reporter.end_log()
        reporter.say("nowhere")
    assert [(tmp_path / name).read_text() for name in ("first", "second")] == ["first\n", "second\n"]


@pytest.mark.parametrize("verbosity", ["quiet", "verbose"])
def test_a_run_at_each_verbosity(
    verbosity: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], train_small: TrainSmall
) -> None:
    import drivetrain

    train_small(tmp_path / "normal", max_updates=3, log_every=2)
    options = {**SMALL, "max_updates": 3, "log_every": 2, "verbosity": verbosity}
    drivetrain.train(output_dir=str(tmp_path / "run"), **options)
    printed = capsys.readouterr().out.splitlines()
    if verbosity == "quiet":
        lines = [line for line in printed if not line.startswith("warning: ")]
        assert len(lines) == 1
        assert lines[0].startswith("validation_accuracy: ")
    else:
        assert "--limit-train-samples 100  (command line)" in printed
        assert any(line.startswith("conv1_conv  ") and "Conv2d" in line for line in printed)
        assert sum("seconds since the last log: step" in line for line in printed) == 2
    assert _kinds(tmp_path / "run") == _kinds(tmp_path / "normal")


def _kinds(run: Path) -> list[str]:
    """The lines of a run's log by their first word; numbers differ, and a busy machine shows progress."""
    lines = (run / "rank-0.log").read_text().splitlines()
    return [line.split()[0] for line in lines if not re.search(r" so far| left|: done after ", line)]
