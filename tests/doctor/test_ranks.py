import pytest

from drivetrain.doctor.ranks import check_ranks
from drivetrain.ranks import launch as launching
from drivetrain.ranks.launch import LaunchResult
from drivetrain.ranks.rank_failure import RankFailure


def test_two_processes_of_this_machine_add_up() -> None:
    assert check_ranks().status == "ok"


@pytest.mark.parametrize(
    "result",
    [
        LaunchResult(exit_status=1, failed=RankFailure(rank=1, host="h", time_s=0.0, message="no\nroute")),
        LaunchResult(exit_status=3),
    ],
)
def test_what_keeps_them_apart_is_told(result: LaunchResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "launch", lambda *args, **options: result)
    found = check_ranks()
    assert found.status == "note"
    assert ("(no route)" if result.failed else "(exit status 3)") in found.sentence


def test_processes_that_cannot_start_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: object, **options: object) -> LaunchResult:
        raise OSError("too many processes")

    monkeypatch.setattr(launching, "launch", failing)
    assert "(too many processes)" in check_ranks().sentence
