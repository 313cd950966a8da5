"""The course of a suite: order, failures, a kill in the middle and the same command again."""

from pathlib import Path

import pytest

from drivetrain.bench.suite.case import SuiteSettings
from drivetrain.bench.suite.folder import SuiteFolder
from drivetrain.bench.suite.run import Ended, run_suite
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.store.lock import hold_lock
from tests.bench.suite.fake_cases import FakeProcesses, fake_cases

CASES = fake_cases()


def _run(path: Path, processes: FakeProcesses, *, retries: bool = False) -> list[Ended]:
    with Reporter(quiet=True) as reporter:
        return run_suite(
            CASES,
            SuiteSettings(),
            SuiteFolder(path),
            reporter=reporter,
            most_s=1.0,
            retries=retries,
            measure=processes,
        )


def test_a_network_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    ended = _run(tmp_path / "s", FakeProcesses())
    assert [each.case for each in ended] == CASES
    statuses = {(each.case.model, each.outcome.status) for each in ended}
    assert statuses == {("resnet18", "measured"), ("vgg16", "measured"), ("broken", "failed")}
    assert {each.outcome.why for each in ended if each.case.model == "broken"} == {"it is broken"}


@pytest.mark.parametrize("killed_after", [0, 1, 5, len(CASES) - 1])
def test_killed_and_typed_again_it_measures_what_is_missing(tmp_path: Path, killed_after: int) -> None:
    first = FakeProcesses(ends_after=killed_after)
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path / "s", first)
    second = FakeProcesses()
    ended = _run(tmp_path / "s", second)
    assert first.asked + second.asked == [SuiteFolder(tmp_path / "s").result_path(case) for case in CASES]
    assert ended == _run(tmp_path / "t", FakeProcesses())


def test_typed_again_when_all_have_ended_it_measures_nothing(tmp_path: Path) -> None:
    before, again = _run(tmp_path / "s", FakeProcesses()), FakeProcesses()
    assert _run(tmp_path / "s", again) == before
    assert again.asked == []


def test_only_what_failed_is_retried(tmp_path: Path) -> None:
    _run(tmp_path / "s", FakeProcesses())
    again = FakeProcesses()
    _run(tmp_path / "s", again, retries=True)
    assert [path.name for path in again.asked] == [
        f"{case.key}.json" for case in CASES if case.model == "broken"
    ]


def test_two_suites_do_not_share_a_folder(tmp_path: Path) -> None:
    _run(tmp_path / "s", FakeProcesses())
    with hold_lock(tmp_path / "s"), pytest.raises(BadInputError, match=r"--output .* is in use"):
        _run(tmp_path / "s", FakeProcesses())
