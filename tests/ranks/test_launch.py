"""Real rank processes: how they start, and that none outlives a failure, a signal or the launcher."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.ranks.launch import launch
from drivetrain.ranks.threads import cores
from tests.deadlines import HANG_S, wait_until
from tests.ranks import rank_functions as work

ROOT = Path(__file__).parents[2]


def _nobody_is_left(folder: Path) -> bool:
    return not any(map(work.lives, work.pids_in(folder)))


def test_every_rank_finds_its_place_and_its_share_of_the_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    result = launch(work.write_place, args=(tmp_path,), ranks=4)
    assert (result.settle(), result.failed) == (0, None)
    share = max(1, cores() // 4)
    for rank in range(4):
        text = (tmp_path / f"place-{rank}").read_text()
        assert text == f"{rank} of 4, here {rank} of 4, drivetrain, {share} threads"
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.parametrize(("asked", "expected"), [(None, "7"), (3, "3")])
def test_threads_as_the_user_said(
    asked: int | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert launch(work.write_place, args=(tmp_path,), ranks=1, threads_per_rank=asked).settle() == 0
    assert (tmp_path / "place-0").read_text().endswith(f"{expected} threads")
    assert os.environ["OMP_NUM_THREADS"] == "7"


def test_torch_keeps_to_the_threads(tmp_path: Path) -> None:
    launch(work.write_torch_threads, args=(tmp_path,), ranks=1, threads_per_rank=1)
    assert (tmp_path / "threads-0").read_text() == "1"


@pytest.mark.parametrize(("statuses", "expected"), [([0, 0], 0), ([75, 75], 75), ([0, 143], 143)])
def test_clean_statuses_are_the_launchers(statuses: list[int], expected: int) -> None:
    assert launch(work.return_status, args=(statuses,), ranks=2).settle() == expected


def test_a_library_that_aborts_when_it_is_unloaded_fails_no_finished_rank(tmp_path: Path) -> None:
    code = f"""
import pathlib
from tests.ranks.rank_functions import abort_in_a_destructor
abort_in_a_destructor(pathlib.Path({str(tmp_path)!r}))
"""
    plain = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=HANG_S)
    assert plain.returncode == -signal.SIGABRT
    (tmp_path / "exit function").unlink()
    result = launch(work.abort_in_a_destructor, args=(tmp_path,), ranks=1)
    assert (result.settle(), result.failed) == (0, None)
    assert (tmp_path / "exit function").read_text() == "ran"


@pytest.mark.parametrize(
    ("how", "words", "status", "ranks"),
    [
        ("exception", "failed: ValueError: weights of layer conv1 are odd", 1, 4),
        ("bad input", "failed: --data-dir nowhere is not here; try --data-dir data.", 2, 2),
        ("exit", "failed: exit status 3", 1, 2),
        ("silent exit", "failed: exit status 4; it left no error message.", 1, 2),
        ("kill", "was killed by SIGKILL; it left no error message.", 1, 4),
    ],
)
def test_one_rank_fails_and_all_stop(how: str, words: str, status: int, ranks: int, tmp_path: Path) -> None:
    result = launch(work.fail, args=(tmp_path, ranks, 1, how), ranks=ranks, grace_s=2.0)
    assert result.exit_status == status
    assert result.failed is not None
    assert result.failed.sentence.startswith("rank 1 on ")
    assert result.failed.sentence.endswith(words)
    assert _nobody_is_left(tmp_path)


def test_a_bug_shows_its_traceback_and_then_who_had_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = launch(work.fail, args=(tmp_path, 2, 1, "exception"), ranks=2)
    with pytest.raises(RunFailedError, match=r"^rank 1 on \S+ failed: ValueError: weights"):
        result.settle()
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.rstrip().endswith("ValueError: weights of layer conv1 are odd")


def test_ranks_that_do_not_listen_are_killed(tmp_path: Path) -> None:
    result = launch(work.be_deaf, args=(tmp_path, 2), ranks=2, grace_s=0.5)
    assert result.failed is not None
    assert (result.failed.rank, result.failed.message) == (0, "ValueError: the cause")
    assert _nobody_is_left(tmp_path)


def test_what_a_killed_rank_started_is_ended_too(tmp_path: Path) -> None:
    result = launch(work.start_helper_and_die, args=(tmp_path,), ranks=2, grace_s=0.5)
    assert result.failed is not None
    assert result.failed.signal_number == signal.SIGKILL
    wait_until(lambda: _nobody_is_left(tmp_path))


def test_the_last_output_of_a_crashed_rank_is_shown(tmp_path: Path) -> None:
    result = launch(work.crash, args=(tmp_path, 2), ranks=2, grace_s=0.5)
    assert result.failed is not None
    assert result.failed.sentence.startswith("rank 1 on ")
    assert "was killed by SIGSEGV" in result.failed.sentence
    assert "in crash" in result.failed.traceback_text


def test_bad_input_that_all_ranks_find_is_said_once_without_a_rank() -> None:
    result = launch(work.find_bad_input, ranks=3, max_restarts=3)
    assert result.exit_status == 2
    with pytest.raises(BadInputError, match=r"^--replicas 3 does not divide"):
        result.settle()


def test_the_cause_is_told_from_its_consequences(tmp_path: Path) -> None:
    result = launch(work.meet_and_fail, args=(tmp_path, 3, 2), ranks=3, grace_s=1.0)
    assert result.failed is not None
    assert (result.failed.rank, result.failed.message) == (2, "ValueError: the cause")
    assert not result.failed.is_consequence
    assert _nobody_is_left(tmp_path)


def test_a_rank_that_hangs_is_found_by_the_others_and_shown(tmp_path: Path) -> None:
    result = launch(work.meet_and_hang, args=(tmp_path, 2, 1), ranks=2, grace_s=0.5)
    assert result.failed is not None
    assert (result.failed.rank, result.failed.is_consequence) == (0, True)
    assert "Timed out" in result.failed.message
    assert "rank 1 on" in result.failed.traceback_text
    assert "in do_something_else" in result.failed.traceback_text
    assert _nobody_is_left(tmp_path)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_passed_on_once_and_its_status_comes_back(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    process = _start_launcher("stop", tmp_path, ranks=2)
    # As a terminal does it: to the launcher and to everything in its process group.
    os.killpg(process.pid, number)
    assert process.wait(timeout=HANG_S) == status
    assert len(list(tmp_path.glob("stopped-*"))) == 2
    assert _nobody_is_left(tmp_path)


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    process = _start_launcher("never", tmp_path, ranks=2)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: len(list(tmp_path.glob("asked-*"))) == 2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=HANG_S) == 143
    assert _nobody_is_left(tmp_path)


def test_a_signal_before_ranks_listen_ends_them(tmp_path: Path) -> None:
    process = _start_launcher("sleep", tmp_path, ranks=2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=HANG_S) == 143
    assert _nobody_is_left(tmp_path)


def test_ranks_do_not_outlive_a_killed_launcher(tmp_path: Path) -> None:
    process = _start_launcher("sleep", tmp_path, ranks=2)
    assert all(map(work.lives, work.pids_in(tmp_path)))
    process.kill()
    process.wait(timeout=HANG_S)
    wait_until(lambda: _nobody_is_left(tmp_path))


def test_signals_in_this_process_go_to_the_ranks(tmp_path: Path) -> None:
    former = signal.getsignal(signal.SIGTERM)
    threading.Thread(target=_send_sigterm_when_all_are_here, args=(tmp_path, 2)).start()
    assert launch(work.stop_when_asked, args=(tmp_path, 2), ranks=2).settle() == 143
    assert signal.getsignal(signal.SIGTERM) is former


def test_restarts_until_it_works(tmp_path: Path) -> None:
    said: list[str] = []
    result = launch(
        work.fail_at_first, args=(tmp_path, 2), ranks=2, max_restarts=3, grace_s=0.5, say=said.append
    )
    assert result.settle() == 0
    attempts = sorted(path.name for path in tmp_path.glob("attempt-*-1"))
    assert attempts == ["attempt-0-1", "attempt-1-1", "attempt-2-1"]
    assert [line.partition("; ")[2] for line in said] == [
        "all ranks are restarted (restart 1 of 3).",
        "all ranks are restarted (restart 2 of 3).",
    ]
    assert "failed: ValueError: failure 0" in said[0]


def test_restarts_run_out(tmp_path: Path) -> None:
    result = launch(work.fail_at_first, args=(tmp_path, 9), ranks=2, max_restarts=1, grace_s=0.5)
    assert result.exit_status == 1
    assert result.failed is not None
    assert result.failed.message == "ValueError: failure 1"


@pytest.mark.parametrize("keeps", [True, False])
def test_rank_0_owns_the_terminal_and_the_others_their_logs(
    keeps: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch(work.talk, args=(tmp_path, keeps), ranks=2).settle() == 0
    shown = capfd.readouterr()
    assert shown.out == "rank 0 early\nrank 0 late\n"
    assert shown.err == "rank 0 error\n"
    logs = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(logs) == ({"rank-1.log"} if keeps else set())
    if keeps:
        assert sorted(logs["rank-1.log"].splitlines()) == ["rank 1 early", "rank 1 error", "rank 1 late"]


def test_a_job_leaves_no_processes(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    launch(work.fail, args=(tmp_path, 2, 1, "exception"), ranks=2)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        launch(lambda: 0, ranks=2)
    after = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    assert [child.cmdline() for child in after if "resource_tracker" not in " ".join(child.cmdline())] == []


def test_a_script_without_a_guard_gets_a_sentence(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom drivetrain.ranks.launch import launch\nlaunch(sys.exit, ranks=2).settle()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 1
    assert "under `if __name__ == '__main__':`; put the call there." in done.stderr


def _start_launcher(name: str, folder: Path, *, ranks: int) -> subprocess.Popen[bytes]:
    """A launcher in a process group of its own, once all its ranks are there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.ranks.rank_functions", name, str(folder), str(ranks)],
        cwd=ROOT,
        start_new_session=True,
    )
    wait_until(lambda: len(list(folder.glob("pid-*"))) == ranks)
    return process


def _send_sigterm_when_all_are_here(folder: Path, ranks: int) -> None:
    wait_until(lambda: len(list(folder.glob("pid-*"))) == ranks)
    os.kill(os.getpid(), signal.SIGTERM)
