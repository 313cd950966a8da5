"""The lock of a run directory belongs to one process, and ends with it whatever it leaves behind."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.store import lock as lock_module
from drivetrain.store.lock import held_locks, hold_lock, is_among, is_locked
from tests.deadlines import wait_until

_HOLDER = """
import os, sys, time
from pathlib import Path
from drivetrain.store.lock import held_locks, hold_lock, is_among
with hold_lock(Path(sys.argv[1])):
    child = os.fork()
    if child:
        print(child, flush=True)
    time.sleep(60)
"""
_WAITER = "import sys; print('begun', flush=True); sys.stdin.read()"


def _fork(act: Callable[[], int]) -> int:
    """A forked process that ends with the status its act gives."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = act()
        finally:
            os._exit(status)
    return child


@contextmanager
def _living_child() -> Iterator[None]:
    """A forked process that lives until the end of the block."""
    begun, tell = os.pipe()

    def live() -> int:
        os.write(tell, b".")
        signal.pause()
        return 0

    child = _fork(live)
    os.read(begun, 1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(begun)
        os.close(tell)


def _is_free(directory: Path) -> bool:
    with (directory / ".lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _is_refused(directory: Path) -> bool:
    try:
        with hold_lock(directory):
            return False
    except BadInputError as error:
        return "in use by another process" in str(error)


def test_the_lock_ends_with_the_block_even_where_that_fails(tmp_path: Path) -> None:
    with hold_lock(tmp_path):
        assert not _is_free(tmp_path)
    assert _is_free(tmp_path)
    with pytest.raises(KeyError), hold_lock(tmp_path):
        raise KeyError
    assert _is_free(tmp_path)


def test_a_forked_child_takes_the_lock_neither_away_nor_over(tmp_path: Path) -> None:
    with hold_lock(tmp_path):
        child = _fork(lambda: 0 if _is_refused(tmp_path) else 1)
        with _living_child():
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert _is_refused(tmp_path)


def test_a_refused_process_leaves_nothing_to_its_children(tmp_path: Path) -> None:
    with hold_lock(tmp_path):
        assert _is_refused(tmp_path)
        with _living_child():
            assert not _is_free(tmp_path)
    assert _is_free(tmp_path)


def test_a_forked_child_keeps_no_lock_that_its_parent_gave_up(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    with hold_lock(tmp_path / "kept"), ExitStack() as given_up:
        given_up.enter_context(hold_lock(tmp_path))
        with _living_child():
            given_up.close()
            assert _is_free(tmp_path)
            assert not _is_free(tmp_path / "kept")


def test_a_descriptor_that_stays_open_in_a_child_would_hold_the_lock(tmp_path: Path) -> None:
    file = (tmp_path / ".lock").open("w")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with _living_child():
        file.close()
        assert not _is_free(tmp_path)
    assert _is_free(tmp_path)


def test_a_killed_process_frees_the_lock_at_once_though_its_child_lives(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        assert not _is_free(tmp_path)
        holder.kill()
        holder.wait()
        try:
            # A child that the system has not let run yet has not closed its copy of the descriptor.
            wait_until(lambda: _is_free(tmp_path))
        finally:
            # Which fails where the child was gone before.
            os.kill(child, signal.SIGKILL)


def test_a_program_that_was_started_keeps_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WAITER]
    with hold_lock(tmp_path):
        waiter = subprocess.Popen(command, close_fds=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with waiter:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == b"begun\n"
        assert _is_free(tmp_path)
        assert waiter.poll() is None


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the kernel does not list its locks")
def test_a_lock_is_seen_without_being_taken(tmp_path: Path) -> None:
    assert not is_among(tmp_path, held_locks())
    with hold_lock(tmp_path):
        assert is_among(tmp_path, held_locks())
        assert not is_among(tmp_path, None)
    assert not is_among(tmp_path, held_locks())


@pytest.mark.parametrize("is_listed", [True, False])
def test_whether_a_lock_is_held_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_listed: bool
) -> None:
    """Where the kernel lists no locks, a shared lock is asked for."""
    if not is_listed:
        monkeypatch.setattr(lock_module, "held_locks", lambda: None)
    assert not is_locked(tmp_path)
    with hold_lock(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
